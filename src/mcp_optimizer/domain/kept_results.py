"""A kept result, as values. Imports nothing heavy, because they are made while a request waits."""

from __future__ import annotations

from dataclasses import dataclass


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
