"""Runs: single or parallel runs, their progress and their files."""
