"""The sockets on which running gateways answer commands: their names, and where they are.

Called by the listener, which creates a socket, and by commands, which look for sockets. Knows nothing of messages.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from mcp_optimizer.config.settings import Settings
from mcp_optimizer.runtime.sharing.places import folders, sockets_named


def identity(settings: Settings) -> str:
    """A digest of what a gateway and a command must share: the servers and their database."""
    source = "demo" if settings.demo else os.path.realpath(settings.server_file)
    place = settings.database_place
    if isinstance(place, Path):
        stored = os.path.realpath(place)
    else:
        url = urlsplit(place or "none")
        # Without the password: nothing may be derived from it.
        stored = f"{url.scheme} {url.username or ''} {url.hostname or ''} {url.port or ''} {url.path}" if place else ""
    chosen = sorted(name for name in (part.strip() for part in settings.servers.split(",")) if name)
    known = json.dumps([source, settings.demo, chosen, stored])
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def socket_name(of: str, pid: int) -> str:
    return f"{of}-{pid}.sock"


def sockets(of: str, environment: Mapping[str, str]) -> list[Path]:
    """The sockets of gateways with this identity, newest first. Skips links and files of other users."""
    return sockets_named(lambda name: name.startswith(f"{of}-"), folders(environment))
