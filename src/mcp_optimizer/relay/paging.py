"""Lists, page by page. Pages are large, because many clients read only the first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

_SIZE = 1_000
_LONGEST_CURSOR = 20

T = TypeVar("T")


def page(
    entries: Sequence[T], key: str, params: Mapping[str, Any] | None, shown: Callable[[T], Mapping[str, Any]]
) -> dict[str, Any]:
    """The page at a request's cursor, under the list's own key; `shown` converts only its entries."""
    cursor = (params or {}).get("cursor")
    start = 0
    if isinstance(cursor, str) and cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR:
        start = int(cursor)
    if cursor is not None and not 0 < start < len(entries):
        raise MCPError(types.INVALID_PARAMS, "This cursor is not or no longer valid: list from the beginning")
    result: dict[str, Any] = {key: [shown(entry) for entry in entries[start : start + _SIZE]]}
    if start + _SIZE < len(entries):
        result["nextCursor"] = str(start + _SIZE)
    return result
