"""Lists a page at a time. Pages are large, because many clients read the first one only. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

_SIZE = 1_000


def page(entries: Sequence[Mapping[str, Any]], key: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The page that a request's cursor asks for, under the list's own key."""
    cursor = (params or {}).get("cursor")
    start = int(cursor) if isinstance(cursor, str) and cursor.isdecimal() else 0
    if cursor is not None and not 0 < start < len(entries):
        raise MCPError(types.INVALID_PARAMS, "This cursor is not valid (any more): list from the beginning")
    result: dict[str, Any] = {key: list(entries[start : start + _SIZE])}
    if start + _SIZE < len(entries):
        result["nextCursor"] = str(start + _SIZE)
    return result
