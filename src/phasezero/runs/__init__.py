"""Runs: one, several at once, their progress and the files they leave."""
