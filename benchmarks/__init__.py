"""Benchmarks, run by hand: they print figures and ratios. `python -m benchmarks` lists them."""
