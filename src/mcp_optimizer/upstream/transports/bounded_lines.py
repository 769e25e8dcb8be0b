"""Splits chunks of bytes into lines of bounded length as they arrive. Knows no transport.

A reader of bytes that have already arrived never waits, so it never yields to the event loop by itself: `TimeSlice`
tells it when to. Used for pipes of servers and clients, and for event streams.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mcp_optimizer.largejson.large_messages import LARGE

_SLICE_SECONDS = 0.002
"""Seconds. A call needs about ten iterations of the event loop, and each may be delayed by one such slice."""


class TimeSlice:
    """The time slices of one reader."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + _SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._ends

    async def next(self) -> None:
        await asyncio.sleep(0)
        self._ends = time.monotonic() + _SLICE_SECONDS


_KEPT = 1_000
"""Bytes kept of each end of a dropped line: one end contains the id."""

_ENDLESS = 4
"""A dropped line longer than this multiple of the limit counts as endless."""


class EndlessLine(Exception):
    """A line is so long that it counts as endless."""


@dataclass(frozen=True)
class OverlongLine:
    """A line that was too long and was dropped while it arrived."""

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, line: bytes | bytearray) -> OverlongLine:
        """The ends of a complete line."""
        return cls(bytes(line[:_KEPT]), bytes(line[-_KEPT:]))


async def lines(
    chunks: AsyncIterator[bytes], most: int, *, gives_up: bool = True
) -> AsyncIterator[bytes | bytearray | OverlongLine]:
    """Split chunks into lines. Accumulates in one bytearray, so completing a long line copies nothing. With `gives_up`,
    raises EndlessLine on an endless line.
    """
    partial = bytearray()
    dropping: _Dropping | None = None
    turns = TimeSlice()
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
            # A large line is returned as a bytearray, uncopied; its reader consumes it in parts.
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
    """A line that is too long. Keeps its ends and, if lines may be endless, counts its length."""

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

    def line(self) -> OverlongLine:
        return OverlongLine(self._head, self._tail)
