"""Rehearses a script before it runs, with kinds in place of values, and reports what will certainly fail."""
