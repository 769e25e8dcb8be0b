"""Reads and writes JSON of any size without turning all of it into objects."""
