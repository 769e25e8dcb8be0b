"""Identifies callers over HTTP: API keys, tokens, and the door that requires one of them."""
