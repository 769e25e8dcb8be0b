"""The servers behind the gateway: the server file, a session with each server, and the pool of all."""
