"""Logins to servers, and stored secrets."""
