"""The one way a tool, a prompt or a resource is named to clients: as it is where that is unique, else with its server.

A tool or prompt becomes `server__name`, a URI `server+uri`. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

SEPARATOR = "__"
_SPELLINGS = (SEPARATOR, ".", "/", ":")
"""How a server's name is put before a tool's, here and by the clients that models were trained with."""


def public_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Unique names for (server, tool) pairs, in their order; the same pairs always get the same names."""
    shared = Counter(tool for _, tool in tools)
    taken: set[str] = {tool for tool, count in shared.items() if count == 1}
    return [tool if shared[tool] == 1 else _free(f"{server}{SEPARATOR}{tool}", taken) for server, tool in tools]


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate


def public_uris(resources: Sequence[tuple[str, str]]) -> list[str]:
    """Unique URIs for (server, URI) pairs, in their order. A server that lists one twice means the same."""
    servers: dict[str, set[str]] = {}
    for server, uri in resources:
        servers.setdefault(uri, set()).add(server)
    return [uri if len(servers[uri]) == 1 else f"{_scheme(server)}+{uri}" for server, uri in resources]


def uri_without_server(uri: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """The server and its own URI that a URI with a server in it means; None if there is none in it."""
    prefix, separator, own = uri.partition("+")
    return next(((server, own) for server in servers if separator and _scheme(server) == prefix), None)


def _scheme(server: str) -> str:
    """A server's name as the beginning of a URI's scheme, which has fewer letters to choose from."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", server).lower()


def without_server(name: str, server: str) -> str | None:
    """The tool's part of a name that begins with this server's; None if it does not."""
    # As it is, too: a server may itself be called "mcp".
    for bare in (name.removeprefix("mcp__"), name):
        for separator in _SPELLINGS:
            if bare.startswith(f"{server}{separator}"):
                return bare.removeprefix(f"{server}{separator}")
    return None
