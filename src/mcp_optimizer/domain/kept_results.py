"""What a caller can come back for: a kept result, and a task. Imports nothing heavy, because they are made while a
request waits.
"""

from __future__ import annotations

from dataclasses import dataclass

# A task of a server that a client asks for through the gateway. A frozen value.


@dataclass(frozen=True)
class KeptTask:
    """Where a task is, whose it is, and how its result is treated."""

    id: str
    caller: str
    """The principal that made the call; no other one can ask for the task."""
    server: str
    own_id: str
    """The id of the task at its server."""
    tool: str
    """The tool's own name there."""
    selection: str
    """The expression that selects the part of the result that is returned."""
    is_unchanged: bool
    """Whether the result is returned as the server sends it."""
    until_ms: int


@dataclass(frozen=True)
class KeptResult:
    """A kept result, without its text."""

    id: str
    caller: str
    unit: str
    pieces: int
    max_tokens: int
    bytes: int


@dataclass(frozen=True)
class Chunk:
    """Consecutive pieces of one text: their lengths (little-endian, four bytes each) and their text, compressed."""

    block: int
    first: int
    lengths: bytes
    body: bytes

    @property
    def after(self) -> int:
        """The number of the first piece after these."""
        return self.first + len(self.lengths) // 4

    @property
    def size(self) -> int:
        return len(self.body) + len(self.lengths)
