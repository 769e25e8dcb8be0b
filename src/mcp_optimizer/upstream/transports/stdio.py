"""Runs a server as a child process and speaks newline-delimited JSON-RPC with it.

Replaces the SDK's client for five reasons: the exit code and the last lines of stderr show a user what is wrong; a
child that prints anything but MCP is given up instead of being logged line by line forever; long lines are joined only
once; a child gets no more of our environment than it needs; and a child that does not read fills no memory.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.large_messages import LARGE, read_large
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.line_reader import LineReader
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.diagnostics import Failure, telling_line
from mcp_optimizer.upstream.peer import Message, Peer, to_wire
from mcp_optimizer.upstream.request_errors import ServerGone
from mcp_optimizer.upstream.transports import processes
from mcp_optimizer.upstream.transports.bounded_lines import EndlessLine, OverlongLine, lines


class ChildInput:
    """Writes one message at a time, each only after the child took the one before, so that a child that does not read
    fills no memory.
    """

    def __init__(self, stdin: asyncio.StreamWriter, hang_up: Callable[[], None]) -> None:
        """`hang_up` is called if the child no longer reads."""
        self._stdin = stdin
        self._pipe = stdin.transport
        self._hang_up = hang_up
        self._turn = asyncio.Lock()
        self._waiting = 0
        """How many messages wait for others, or for the child."""

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        if self._waiting or not self._is_taken():
            await self._in_turn(message)
            return
        self._stdin.write(to_wire(message) + b"\n")
        if not self._is_taken():
            await self._in_turn(None)

    def _is_taken(self) -> bool:
        """Whether everything so far is in the pipe, and the pipe is open, as nearly always."""
        return not self._pipe.get_write_buffer_size() and not self._pipe.is_closing()

    async def _in_turn(self, message: Message | None) -> None:
        """Wait until everything before is in the pipe, then write the message, if any, and wait for it too."""
        self._waiting += 1
        try:
            async with self._turn:
                await self._stdin.drain()
                if message is not None:
                    self._stdin.write(to_wire(message) + b"\n")
                    await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            self._hang_up()
            raise ServerGone from error
        finally:
            self._waiting -= 1


logger = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_HEAD = 200
"""Bytes of a line examined to see whether it is meant as a message."""
_GARBAGE_LIMIT = 100
"""Consecutive non-MCP lines before a child is given up."""


def plain(text: str) -> str:
    """A server's text, without control characters that could rewrite a terminal."""
    return printable(text).strip()


class ChildProcess:
    """A running child and its output, with its secrets removed."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        redactor: Redactor,
        limits: Limits = DEFAULT_LIMITS,
        heard: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._heard = heard
        self._process = process
        self._redactor = redactor
        self.stderr_tail: deque[str] = deque(maxlen=limits.stderr_lines)
        self._garbage: list[str] = []
        self._stray = ""
        self._is_endless = False
        self._being_ended = False
        self.gave_up = False
        """Whether it printed so many lines that are not MCP that its output is no longer read."""
        self.hung_up = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """Note that the child ended the connection. Ignored once we have begun to end it ourselves."""
        if not self._being_ended:
            self.hung_up = True

    def will_be_ended(self) -> None:
        """Note that we end the child ourselves from now on."""
        self._being_ended = True

    def spoke_mcp(self) -> None:
        self._garbage.clear()

    def printed(self, line: str) -> None:
        """Note a line that is not MCP; after too many in a row the child is given up."""
        self._garbage.append(line)
        self._stray = self._stray or line
        self.gave_up = len(self._garbage) >= _GARBAGE_LIMIT

    def complained(self, line: str) -> None:
        """Note a line that the child wrote to its stderr."""
        self.stderr_tail.append(line)
        self._heard(line)

    def never_ends_its_line(self) -> None:
        self._is_endless = True

    def failure(self) -> Failure | None:
        """Why the connection to this child ended, if known; None if we ended it."""
        if self._is_endless:
            return Failure(FailureKind.NOT_MCP, "it prints an endless line on its stdout")
        if self.gave_up:
            printed = self._redactor.text(self._garbage[0])
            return Failure(FailureKind.NOT_MCP, f"it prints text that is not MCP on its stdout, such as {printed!r}")
        if not self.hung_up:
            return None
        code = self._process.returncode
        if code is None:
            how = "it closed its stdout"
        elif code < 0:
            how = f"it was ended by {_signal_name(-code)}"
        else:
            how = f"it exited with code {code}"
        if said := self.waiting():
            return Failure(FailureKind.EXITED, f"{how}; it said: {said}")
        return Failure(FailureKind.EXITED, f"{how}; it printed: {self.stray!r}" if self.stray else how)

    def waiting(self) -> str:
        """The most informative line of its stderr."""
        return self._redactor.text(telling_line(self.stderr_tail))

    @property
    def stray(self) -> str:
        """The first line on its stdout that is not MCP."""
        return self._redactor.text(self._stray)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@asynccontextmanager
async def run_child(
    spec: ServerSpec, peer: Peer, heard: Callable[[str], None] = lambda _line: None, *, network: bool = True
) -> AsyncIterator[ChildProcess]:
    """Start the child and bind the peer to it; on exit, end it and everything it started. `heard` is called with each
    line of its stderr. `network`: it gets our environment variables for proxies and certificates.
    """
    process = await processes.spawn(spec, network=network)
    child = ChildProcess(process, Redactor(spec), peer.limits, heard)
    assert process.stdin is not None
    peer.bind(ChildInput(process.stdin, child.hang_up))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_stdout, process, child, peer)
        tasks.start_soon(_read_stderr, process, child, peer.limits)
        try:
            yield child
        finally:
            child.will_be_ended()
            with anyio.CancelScope(shield=True):
                await processes.end(process)
            tasks.cancel_scope.cancel()


async def _read_stdout(process: asyncio.subprocess.Process, child: ChildProcess, peer: Peer) -> None:
    assert isinstance(process.stdout, LineReader)
    process.stdout.show_lines_to(partial(_took_response, child, peer))
    large = _LargeMessages(child, peer)
    try:
        async for line in lines(_chunks(process.stdout), peer.limits.message_bytes):
            if isinstance(line, OverlongLine):
                peer.lose_overlong(line)
            elif len(line) >= LARGE:
                await large.take(line)
            elif line and not line.isspace():
                _take(_parsed(line), line, child, peer)
            # Free the line: it may be megabytes long, and the next message may be hours away.
            del line
            if child.gave_up:
                return
            if peer.is_crowded:
                await peer.room()
        await large.taken()
        child.hang_up()
    except EndlessLine:
        child.never_ends_its_line()
    finally:
        large.cancel()
        peer.close()


class _LargeMessages:
    """Reads large messages in threads, so that later responses need not wait."""

    def __init__(self, child: ChildProcess, peer: Peer) -> None:
        self._child = child
        self._peer = peer
        self._tasks = BackgroundTasks(logger, "Cannot read a large message")
        self._sizes: dict[asyncio.Task[None], int] = {}

    async def take(self, line: bytes | bytearray) -> None:
        # All messages in progress together are limited to the size of one, so a child that sends many is slowed down.
        while self._sizes and sum(self._sizes.values()) + len(line) > self._peer.limits.message_bytes:
            await asyncio.wait(self._sizes, return_when=asyncio.FIRST_COMPLETED)
        task = self._tasks.spawn(_take_large(line, self._child, self._peer))
        self._sizes[task] = len(line)
        task.add_done_callback(self._sizes.pop)

    async def taken(self) -> None:
        await self._tasks.settled()

    def cancel(self) -> None:
        self._tasks.cancel()


def _parsed(line: bytes | bytearray) -> Any:
    try:
        return parsed(line)
    except ValueError:
        return None


def _took_response(child: ChildProcess, peer: Peer, line: bytes) -> bool:
    """Pass on a line that arrived alone if it is a response; returns whether it was. Other lines are read in order."""
    message = _parsed(line)
    if not isinstance(message, dict) or "jsonrpc" not in message or "id" not in message or "method" in message:
        return False
    child.spoke_mcp()
    peer.receive(message)
    return True


async def _take_large(line: bytes | bytearray, child: ChildProcess, peer: Peer) -> None:
    try:
        message = await asyncio.to_thread(read_large, line, parsed)
    except (ValueError, RecursionError):
        message = None
    _take(message, line, child, peer)


def _take(message: Any, line: bytes | bytearray, child: ChildProcess, peer: Peer) -> None:
    """Pass a message on; note a line that is not a message, which may make the child be given up."""
    if isinstance(message, list) or (isinstance(message, dict) and "jsonrpc" in message):
        child.spoke_mcp()
        peer.receive(message)
        return
    if message is None and line.startswith(b"{") and b'"jsonrpc"' in line[:_HEAD]:
        peer.lose_unreadable(line)
    child.printed(plain(line[:80].decode(errors="replace")))


async def _chunks(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await stream.read(_CHUNK):
        yield chunk


async def _read_stderr(process: asyncio.subprocess.Process, child: ChildProcess, limits: Limits) -> None:
    """Keep the beginnings of the last lines. A carriage return alone also ends a line, as progress bars use it."""
    assert process.stderr is not None
    partial, most = b"", max(limits.stderr_lines, limits.log_lines)
    async for chunk in _chunks(process.stderr):
        # If one chunk contains very many lines, keep only the last.
        *ended, rest = chunk.replace(b"\r", b"\n").rsplit(b"\n", most + 1)
        if len(ended) > most:
            del ended[0]
            partial = b""
        for line in ended:
            if text := plain((partial + line)[: limits.stderr_line].decode(errors="replace")):
                child.complained(text)
            partial = b""
        partial = (partial + rest)[: limits.stderr_line]
    if text := plain(partial.decode(errors="replace")):
        child.complained(text)
