"""Measurements, run by hand: they print ratios and figures, and assert nothing about time."""
