"""Secrets and logins: what the gateway keeps to prove who it is towards servers, encrypted."""
