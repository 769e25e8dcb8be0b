"""The one way a tool is named to clients: its own name where that is unique, else `server__tool`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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


def without_server(name: str, server: str) -> str | None:
    """The tool's part of a name that begins with this server's; None if it does not."""
    # As it is, too: a server may itself be called "mcp".
    for bare in (name.removeprefix("mcp__"), name):
        for separator in _SPELLINGS:
            if bare.startswith(f"{server}{separator}"):
                return bare.removeprefix(f"{server}{separator}")
    return None
