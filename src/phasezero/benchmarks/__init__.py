"""Benchmarks: the published implementation next to ours."""
