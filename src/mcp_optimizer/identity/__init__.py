"""Logins to servers, and secrets."""
