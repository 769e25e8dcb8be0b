"""Logins to servers, and secrets. Who calls, what callers may do and what happened will stand here, too."""
