"""The server file: parsed into specs, checked and edited."""
