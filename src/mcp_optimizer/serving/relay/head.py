"""Looks up an HTTP request's header fields, indexed once per request. Knows no MCP."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

_KEY = "mcp_optimizer.head"

Fields = Mapping[bytes, bytes]


def fields_of(scope: Scope) -> Fields:
    """The header fields by name; the first one if a name is repeated, as in Starlette."""
    lines, known = scope["headers"], scope.get(_KEY)
    if known is None or known[0] is not lines:
        # A request that is derived from another one has different header lines.
        known = scope[_KEY] = (lines, dict(reversed(lines)))
    fields: Fields = known[1]
    return fields


def is_repeated(scope: Scope, beginnings: tuple[bytes, ...]) -> bool:
    """Whether a header field whose name has one of these prefixes is repeated."""
    found = [name for name, _ in scope["headers"] if name.startswith(beginnings)]
    return len(found) != len(set(found))
