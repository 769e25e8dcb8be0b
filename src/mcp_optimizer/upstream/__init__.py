"""The servers behind the gateway: a session with each, and the pool of all servers."""
