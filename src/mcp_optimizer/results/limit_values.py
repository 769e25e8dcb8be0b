"""The limits of results, and a result within them: values that cutting, paging and the pipeline exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.pages import Pieces
from mcp_optimizer.results.reading import Reading
from mcp_optimizer.results.tool_limits import COMPLETE, LINE_ROOM, Extent

NOTICE_ROOM = 80
"""Tokens reserved for the notice."""

PIECE_ROOM = 100
"""Tokens that a page needs besides a piece: the notice, and the piece's number in a search."""

STRUCTURED = -1
"""The block number of the structured content."""

PAGE_TOKENS = 20_000
"""Tokens of a page of a result that has no token limit."""


@dataclass(frozen=True)
class ResultLimits:
    """The maximum that a result may contain; 0 means no limit."""

    max_rows: int = 0
    max_tokens: int = 0
    reserved: int = 0
    """Tokens for what follows the result."""
    preview_tokens: int = 0
    """The maximum of a result that exceeds `max_tokens`, if it is to be less."""

    @property
    def are_set(self) -> bool:
        """Whether anything may have to be cut."""
        return bool(self.max_rows or self.max_tokens)

    @property
    def of_a_preview(self) -> ResultLimits:
        """The limits of a result that is too long."""
        shown = min(self.preview_tokens or self.max_tokens, self.max_tokens)
        return replace(self, max_tokens=shown, preview_tokens=0)

    def with_room_for(self, extent: Extent) -> ResultLimits:
        """With tokens reserved for the line about the tool's limit, if there is one."""
        return replace(self, reserved=self.reserved + LINE_ROOM) if self.max_tokens and extent.line else self

    @property
    def piece_tokens(self) -> int:
        """The maximum tokens of a piece."""
        return (self.max_tokens or PAGE_TOKENS) - PIECE_ROOM

    @property
    def tokens(self) -> int:
        """The maximum tokens of the result itself."""
        return max(self.max_tokens - self.reserved, 1) if self.max_tokens else 0


@dataclass(frozen=True)
class Limited:
    """A result within its limits. If it was cut: all its pieces, and the first piece that is not completely shown."""

    result: dict[str, Any]
    data: DataInfo | None
    pieces: Pieces | None = None
    next_offset: int = 0
    shown: Reading | None = None
    """The same result as it was read, if that is known."""
    extent: Extent = COMPLETE
    """Whether the tool itself cut it."""
