"""Encoders, which turn texts into vectors: the bundled transformer, a static table, and users' own encoders."""
