"""How commands reach a running gateway: a private socket, one request and one reply."""
