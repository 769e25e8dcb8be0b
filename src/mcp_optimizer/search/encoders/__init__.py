"""Encoders: texts to vectors. The shipped transformer, a static table, and those that users bring."""
