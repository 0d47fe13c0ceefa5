"""Benchmarks: ratios against a named rival, measured in one run. `python -m benchmarks --help`."""
