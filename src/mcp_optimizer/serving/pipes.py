"""Opens the gateway's own stdin and stdout for the event loop, if both are pipes or sockets.

Opened before the rest of the gateway is loaded, so it imports nothing slow. Knows no messages.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.runtime.line_reader import LineReader

CHUNK = 256 * 1024
"""Bytes per read; above twice as many unread bytes, reading from the pipe pauses."""


@dataclass(frozen=True)
class Pipes:
    """Both ends, open."""

    reader: LineReader
    writer: asyncio.StreamWriter
    reading: asyncio.ReadTransport

    def close(self) -> None:
        self.reading.close()
        self.writer.close()


def has_pipes() -> bool:
    """Whether stdin and stdout can be opened here; they can if a client started the process as a server."""
    return sys.platform != "win32" and _is_pipe(0) and _is_pipe(1)


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def own_pipes() -> Pipes:
    """Opens the pipes of the process. From now on, an accidental print goes to stderr and not into the protocol."""
    stdin, stdout = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return await open_pipes(stdin, stdout)


class _OverheardReader(LineReader):
    """A reader that shows everything before anything is done with it."""

    def __init__(self, limit: int, overheard: Callable[[bytes], None]) -> None:
        super().__init__(limit)
        self._overheard = overheard

    def feed_data(self, data: Any) -> None:
        self._overheard(data)
        super().feed_data(data)


async def open_pipes(stdin: int, stdout: int, overheard: Callable[[bytes], None] | None = None) -> Pipes:
    """Opens pipes from two descriptors, which are closed with the pipes. `overheard` gets all input as it arrives."""
    loop = asyncio.get_running_loop()
    reader = LineReader(CHUNK) if overheard is None else _OverheardReader(CHUNK, overheard)
    source, sink = os.fdopen(stdin, "rb", 0), os.fdopen(stdout, "wb", 0)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return Pipes(reader, asyncio.StreamWriter(writing, protocol, None, loop), reading)
