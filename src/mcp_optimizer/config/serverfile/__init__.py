"""The server file: read into specs, checked and edited."""
