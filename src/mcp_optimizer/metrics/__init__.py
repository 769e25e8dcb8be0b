"""Measures what the gateway costs and saves, and reports it."""
