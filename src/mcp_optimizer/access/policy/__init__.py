"""Decides what a caller may do: risk classes of tools, rules, call rates, and approval by a person."""
