"""The tasks of `benchmarks.scripts`, the world they are about, and what counts their tokens."""
