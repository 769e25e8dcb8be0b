"""Follows a server's cursor through the pages of a list, and cannot be led in circles or without end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_PAGES = 1_000
"""No honest list has that many pages; a server without end would invent them."""

_LONGEST = 10_000


class Cursor:
    """Where the next page of a list is: request it with `params`, then `follow` the page that came."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.has_more = True
        self._seen: set[str] = set()

    def follow(self, page: Mapping[str, Any]) -> None:
        """Go to the page that this one names. The end: none, a repeated one, an overlong one, or too many."""
        following = page.get("nextCursor")
        if not isinstance(following, str) or not 0 < len(following) <= _LONGEST or following in self._seen:
            self.has_more = False
            return
        self._seen.add(following)
        self.has_more = len(self._seen) < _MOST_PAGES
        self.params = {"cursor": following}
