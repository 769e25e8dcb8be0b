"""The address on which `serve` listens, and the one at which others reach it. Knows nothing of what is served there."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

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


def reached_from_outside(host: str, port: int, database: object) -> str:
    """The address at which other gateways reach one that listens here. Where that is everywhere, a machine has many:
    the one from which it would reach the database is the likeliest.
    """
    if _is_everywhere(host):
        host = _local_address(database) or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def private_host(peer_address: str) -> str:
    """Where a worker listens for the other gateways: on loopback, unless they are on other machines."""
    return (urlsplit(peer_address).hostname or "") if peer_address else "127.0.0.1"


def shown_address(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _local_address(database: object) -> str:
    try:
        there = urlsplit(database) if isinstance(database, str) else None
        if there is None or not there.hostname:
            return ""
        [(family, kind, number, _, address), *_] = socket.getaddrinfo(
            there.hostname, there.port or 5432, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind, number) as trial:
            # Sends nothing: the system only chooses a way.
            trial.connect(address)
            return str(trial.getsockname()[0])
    except (OSError, ValueError):
        return ""
