"""Measurements and reports."""
