"""Lines of any length up to a bound, from chunks of bytes as they come. Knows no transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from mcp_optimizer.largejson.reading import LARGE
from mcp_optimizer.upstream.turns import Turns

_KEPT = 1_000
"""Bytes of the beginning and of the end of a dropped line that are kept: an id stands in one of them."""

_ENDLESS = 4
"""How many times the bound a line may be, while it is dropped, before it counts as endless."""


class EndlessLine(Exception):
    """A line goes on and on: there is nothing to wait for."""


@dataclass(frozen=True)
class Overlong:
    """A line that was too long, and was dropped while it came."""

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, line: bytes | bytearray) -> Overlong:
        """The ends of a line that is at hand."""
        return cls(bytes(line[:_KEPT]), bytes(line[-_KEPT:]))


async def lines(
    chunks: AsyncIterator[bytes], most: int, *, gives_up: bool = True
) -> AsyncIterator[bytes | bytearray | Overlong]:
    """Accumulates in one bytearray, so completing a long line copies nothing. `gives_up`: on a line that never ends."""
    partial = bytearray()
    dropping: _Dropping | None = None
    turns = Turns()
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            if turns.is_over:
                await turns.next()
            if dropping is None and len(partial) + len(line) > most:
                dropping, partial = _Dropping(partial, None), bytearray()
            if dropping is not None:
                dropping.add(line)
                yield dropping.line()
                dropping = None
                continue
            if not partial:
                yield line
                continue
            partial += line
            # A large one as it is: whoever reads it takes it in parts.
            whole = partial if len(partial) >= LARGE else bytes(partial)
            partial = bytearray()
            yield whole
            del whole
        if dropping is None and len(partial) + len(rest) > most:
            dropping, partial = _Dropping(partial, most if gives_up else None), bytearray()
        if dropping is not None:
            dropping.add(rest)
        else:
            partial += rest


class _Dropping:
    """A line that is too long. Its ends are kept, and it is counted, if there is an end to what may come."""

    def __init__(self, begun: bytearray, most: int | None) -> None:
        self._head = bytes(begun[:_KEPT])
        self._tail = bytes(begun[-_KEPT:])
        self._most = most
        self._size = len(begun)

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._most is not None and self._size > _ENDLESS * self._most:
            raise EndlessLine
        self._head = (self._head + data[:_KEPT])[:_KEPT]
        self._tail = (self._tail + data[-_KEPT:])[-_KEPT:]

    def line(self) -> Overlong:
        return Overlong(self._head, self._tail)
