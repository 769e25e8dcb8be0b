"""Recognises our own entry in a client's file, and a temporary copy of this program. Pure."""

from __future__ import annotations

import os
from typing import Any

from mcp_optimizer.config.known_clients.program import ClientProgram
from mcp_optimizer.config.serverfile.self_reference import is_gateway
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry

DEFAULT_NAME = "mcp-optimizer"


def is_ours(client: ClientProgram, name: str, entry: Any) -> bool:
    """Whether a client's entry is a gateway: by its command, or by its name if it has only a URL."""
    if not isinstance(entry, dict):
        return False
    try:
        flat = client.reading.shape(entry)
    except UnusableEntry:
        return False
    given = {client.reading.renamed.get(key, key): value for key, value in flat.items()}
    command, args, url = given.get("command"), given.get("args"), given.get("url")
    if isinstance(command, str) and command:
        words = tuple(item for item in args if isinstance(item, str)) if isinstance(args, list) else ()
        return is_gateway(ServerSpec(name=name, transport=Transport.STDIO, command=command, args=words))
    return isinstance(url, str) and bool(url) and is_gateway(ServerSpec(name=name, transport=Transport.HTTP, url=url))


def is_temporary(program: str) -> bool:
    """Whether a program is in the temporary cache of uvx or `pipx run`."""
    parts = program.replace(os.sep, "/").lower()
    return any(
        sign in parts for sign in ("/archive-v0/", "/uv/cache/", "/.cache/uv/", "/pipx/.cache/", "/.cache/pipx/")
    )
