"""The address on which `serve` listens. Knows nothing of what is served there."""

from __future__ import annotations

import socket

from mcp_optimizer.errors import ConfigurationError

_BACKLOG = 1_024


def listen(host: str, port: int, *, is_one_of_many: bool = False) -> socket.socket:
    """Bound before anything starts, so that a port in use does not cost ten started servers.

    `is_one_of_many`: the system spreads connections over all such sockets at this port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_one_of_many:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another address with --http."
        ) from error
    # Clients may connect from now on; they are answered once the application is up.
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
