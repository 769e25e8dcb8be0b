"""Benchmarks, run by hand; `python -m benchmarks` lists them.

Most print figures and judge none. `bounds`, `soak` and `soundness` fail if what they check does not hold.
"""
