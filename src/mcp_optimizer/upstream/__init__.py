"""The servers behind the gateway: the file that names them, one live session each, and the pool of all."""
