"""Shrinks tool definitions without losing function: schemas, signatures, descriptions."""
