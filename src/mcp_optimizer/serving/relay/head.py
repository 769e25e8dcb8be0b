"""What an HTTP request says before its body: read once, and looked up by many. Knows no MCP."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

_KEY = "mcp_optimizer.head"

Fields = Mapping[bytes, bytes]


def fields_of(scope: Scope) -> Fields:
    """The header fields by name; of one that is there twice the first, as Starlette reads them."""
    lines, known = scope["headers"], scope.get(_KEY)
    if known is None or known[0] is not lines:
        # Whoever makes a request out of another one gives it other lines.
        known = scope[_KEY] = (lines, dict(reversed(lines)))
    fields: Fields = known[1]
    return fields


def is_repeated(scope: Scope, beginnings: tuple[bytes, ...]) -> bool:
    """Whether a field whose name begins like one of these is there twice."""
    found = [name for name, _ in scope["headers"] if name.startswith(beginnings)]
    return len(found) != len(set(found))
