"""Serves the client on stdio: the event loop itself reads and writes the pipes, and one dispatcher answers.

The SDK uses threads, and each message would wait for three of them. Used only if both are pipes or sockets, which is
how clients start a server; the SDK serves any other kind. Every line goes through the gate, and nothing is read from a
client that does not read its responses. Requests that were answered early are processed again, and their replies not
sent. The first request decides the era, once. Only `server/discover` decides nothing: some clients stop waiting for its
answer and shake hands.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import JSONRPCMessage, JSONRPCRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.runtime.sharing.journal import Standing
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.dispatcher import Answer, ClientDispatcher, RequestContext, Way
from mcp_optimizer.serving.early_answers import NOTHING, EarlyAnswers, Heard, HeardLine
from mcp_optimizer.serving.gate import Gate, Refused
from mcp_optimizer.serving.messages import CALL, Message, Outcome, encoded, id_of, is_large, pieces, response
from mcp_optimizer.serving.modern_clients import ModernClients
from mcp_optimizer.serving.pipes import CHUNK, Pipes, has_pipes, own_pipes
from mcp_optimizer.serving.relay.connected import PipeName
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine, lines

logger = logging.getLogger(__name__)

_ROOM = 64 * 1024
"""Bytes in the pipe's buffer up to which more are written without waiting."""
_FEW = 16
"""Maximum messages waiting to be written while notifications do not wait."""

_LEGACY_ONLY = (
    "this connection serves the handshake protocol era, in which requests with the 2026-07-28 envelope are not accepted"
)
_MODERN_ONLY = "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted"


_INTERRUPTED = (
    "The gateway ended in the middle of this request, and another one has taken over. Whether the request took effect "
    "is not known."
)
_READING = frozenset(
    "initialize ping server/discover tools/list prompts/list prompts/get resources/list resources/templates/list "
    "resources/read resources/subscribe resources/unsubscribe completion/complete logging/setLevel tasks/get "
    "subscriptions/listen".split()
)
_READING_TOOLS = frozenset({"find_tool", "list_tools", "read_result"})
"""Requests, and tools of ours, that a gateway which takes over answers as if they were new."""


async def serve_stdio(server: Server[Any], gate: Gate, early: EarlyAnswers | None = None) -> None:
    """Serve the client on stdin and stdout until it leaves. Takes over from `early`, if it has answered until now."""
    if early is not None:
        await serve_pipes(server, gate, early.pipes, await early.stop())
    elif has_pipes():
        await serve_pipes(server, gate, await own_pipes())
    else:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())


class ClientNotes(Protocol):
    """ClientNotes where a client stands, for another gateway that takes over if this one ends."""

    def answered(self, request: Any) -> None:
        """The request with this id has its answer."""

    def writing(self, *, is_half: bool) -> None:
        """Whether the client has the beginning of a line whose end waits to be written."""


class _NoNotes:
    """Of a gateway with one client, which ends with it."""

    def answered(self, request: Any) -> None:
        """Nothing to note."""

    def writing(self, *, is_half: bool) -> None:
        """Nothing to note."""


@dataclass(frozen=True)
class SharedPipe:
    """One of several clients: its name, its notes, and where it stood at the gateway before this one."""

    name: PipeName
    notes: ClientNotes
    standing: Standing


async def serve_pipes(
    server: Server[Any], gate: Gate, pipes: Pipes, heard: Heard = NOTHING, shared: SharedPipe | None = None
) -> None:
    """The same for any pipes; `heard` was already read from them. `shared`: the gateway has other clients."""
    try:
        async with server.lifespan(server) as lifespan:
            client = PipeClient(server, gate, pipes, lifespan, shared)
            try:
                if shared is not None:
                    await client.take_over(shared.standing)
                await client.read(heard)
            finally:
                await client.end()
    finally:
        pipes.close()


class PipeWriter:
    """Writes messages in order: at once if none are queued, else in a background task."""

    def __init__(self, writer: asyncio.StreamWriter, notes: ClientNotes) -> None:
        self._writer = writer
        self._notes = notes
        self._waiting: deque[tuple[Message, Any]] = deque()
        """Messages, and the ids of the requests that they answer."""
        self._tasks = BackgroundTasks(logger, "Cannot write to the client")
        self._writing: asyncio.Task[None] | None = None
        self._wrote = asyncio.Event()
        self._is_gone = False
        """Whether the client no longer reads."""

    def __len__(self) -> int:
        """The number of messages waiting to be written."""
        return len(self._waiting)

    def tell(self, message: Message, answers: Any = None) -> None:
        """Write a message; `answers` is the id of the request that has its answer with it."""
        pipe = self._writer.transport
        if self._is_gone:
            return
        if self._writing is None and pipe.get_write_buffer_size() < _ROOM and not is_large(message):
            if not pipe.is_closing():
                self._writer.write(encoded(message) + b"\n")
                self._wrote_one(answers)
            return
        self._waiting.append((message, answers))
        if self._writing is None:
            self._writing = self._tasks.spawn(self._write())

    async def drained(self) -> None:
        await self.fewer_than(_FEW)

    async def fewer_than(self, most: int) -> None:
        """Wait until fewer messages are queued; returns at once if the client is gone."""
        while len(self._waiting) >= most:
            self._wrote.clear()
            await self._wrote.wait()

    async def finish(self) -> None:
        """Wait until everything is written."""
        await self._tasks.settled()

    async def _write(self) -> None:
        try:
            while self._waiting:
                message, answers = self._waiting.popleft()
                if is_large(message):
                    self._notes.writing(is_half=True)
                    await self._write_pieces(message)
                else:
                    self._writer.write(encoded(message) + b"\n")
                    await self._writer.drain()
                self._wrote_one(answers)
                self._wrote.set()
        except OSError:
            self._is_gone = True
            self._waiting.clear()
        finally:
            self._writing = None
            self._wrote.set()

    def _wrote_one(self, answers: Any) -> None:
        self._notes.writing(is_half=self._writer.transport.get_write_buffer_size() > 0)
        if answers is not None:
            self._notes.answered(answers)

    async def _write_pieces(self, message: Message) -> None:
        for piece in pieces(message):
            self._writer.write(piece)
            await self._writer.drain()
            # For a client that reads fast, `drain` never waits, and no other task would run.
            await asyncio.sleep(0)
        self._writer.write(b"\n")


class PipeClient:
    """The one client on stdio, and its requests in progress."""

    def __init__(
        self, server: Server[Any], gate: Gate, pipes: Pipes, lifespan: Any, shared: SharedPipe | None = None
    ) -> None:
        self._gate = gate
        self._pipes = pipes
        self._metadata = ServerMessageMetadata(request_context=shared.name) if shared is not None else None
        self._out = PipeWriter(pipes.writer, shared.notes if shared is not None else _NoNotes())
        self._dispatcher = ClientDispatcher(self._out)
        self._connection = Connection.for_loop(self._dispatcher)
        self._legacy = ServerRunner(server, self._connection, lifespan)
        self._modern = ModernClients(server, lifespan, NotifyOnlyOutbound(self._dispatcher))
        self._is_modern: bool | None = None
        """The era of the client; None until its first request decides it."""

    async def take_over(self, standing: Standing) -> None:
        """Continue where the client stood at a gateway that has ended."""
        if standing.is_half_written:
            self._pipes.writer.write(b"\n")
        for line in standing.kept:
            message = await self._gate.read(line)
            if isinstance(message, JSONRPCRequest):
                await self._take_again(HeardLine(line, message.id, {}, is_from_before=True))
            else:
                await self._take(line)
        for request, line in standing.open:
            if await self._may_repeat(line):
                await self._take(line)
            else:
                said = types.ErrorData(code=types.INTERNAL_ERROR, message=_INTERRUPTED)
                self._out.tell(response(request, said), request)

    async def _may_repeat(self, line: bytes) -> bool:
        """Whether a request has no effect, so that it may be carried out twice."""
        try:
            message = await self._gate.read(line)
        except Refused:
            # It is refused again.
            return True
        if not isinstance(message, JSONRPCRequest):
            return False
        if message.method == CALL:
            return (message.params or {}).get("name") in _READING_TOOLS
        return message.method in _READING

    async def read(self, heard: Heard) -> None:
        """Process all input, to the end of stdin."""

        async def chunks() -> AsyncIterator[bytes]:
            yield heard.rest
            while chunk := await self._pipes.reader.read(CHUNK):
                yield chunk

        for said in heard.said:
            await self._take_again(said)
        self._pipes.reader.show_lines_to(self._took)
        async for line in lines(chunks(), self._gate.limits.request_bytes, gives_up=False):
            await self._take(line)
            # The next message may arrive hours later, and this one may be megabytes long.
            del line

    async def end(self) -> None:
        """Finish after the client has gone: answer requests in progress with an error, and write all answers."""
        await self._dispatcher.close()
        await aclose_shielded(self._connection)
        await self._out.finish()

    async def _take(self, line: bytes | bytearray | OverlongLine) -> None:
        try:
            if isinstance(line, OverlongLine):
                text = f"A message may have {self._gate.limits.request_bytes:,} bytes."
                raise self._gate.refuse(Refused("size", types.INVALID_REQUEST, text, id_of(line)))
            if not line or line.isspace():
                return
            message = await self._gate.read(line)
            await self._out.fewer_than(self._gate.limits.pending_replies)
            begun = self._begin(message)
        except Refused as refused:
            self._refuse(refused)
            return
        if begun is not None and isinstance(message, JSONRPCRequest) and message.method == "initialize":
            # Later messages are processed once the handshake is done.
            await asyncio.wait({begun})

    def _took(self, line: bytes) -> bool:
        """Take a single complete line at once; returns False for a line that may have to wait."""
        if len(self._out) >= self._gate.limits.pending_replies or b'"initialize"' in line or line.isspace():
            return False
        try:
            self._begin(self._gate.read_at_once(line))
        except Refused as refused:
            self._refuse(refused)
        return True

    def _refuse(self, refused: Refused) -> None:
        if refused.wants_answer:
            self._out.tell(refused.as_message(), refused.request_id)

    def _begin(self, message: JSONRPCMessage) -> asyncio.Task[None] | None:
        """Start handling a message; raises Refused for a request that cannot begin now."""
        if not isinstance(message, JSONRPCRequest):
            notified = self._modern.notified if self._is_modern else self._legacy.on_notify
            self._dispatcher.take(message, notified, self._metadata)
            return None
        if self._dispatcher.has(message.id):
            # Refused without that id: the client would take the refusal for the response to the other request.
            text = "Another request with this id is still in progress."
            raise self._gate.refuse(Refused("duplicate", types.INVALID_REQUEST, text))
        if len(self._dispatcher) >= (most := self._gate.limits.requests):
            text = f"{most:,} requests are in progress. Wait for responses before sending more."
            refused = Refused("busy", types.INTERNAL_ERROR, text, message.id)
            refused.retry_after = 1
            raise self._gate.refuse(refused)

        def answer(outcome: Outcome | None) -> None:
            if outcome is not None:
                self._out.tell(response(message.id, outcome), message.id)

        return self._answer(message, self._out, answer)

    def _answer(self, message: JSONRPCRequest, way: Way, answer: Answer) -> asyncio.Task[None]:
        handle = self._handler(message.method, message.params or {})
        asks = self._dispatcher if handle != self._modern.answer else None
        context = RequestContext(message.id, message.params, way, asks, self._metadata)
        return self._dispatcher.begin(message, context, handle, answer)

    def _handler(self, method: str, params: Mapping[str, Any]) -> OnRequest:
        """The handler for a request, by the era of the client."""
        is_modern = method != "initialize" and _has_envelope(params)
        if self._is_modern is None:
            if is_modern and method == "server/discover":
                return self._modern.answer
            self._is_modern = is_modern
        if self._is_modern:
            return _refuses_handshake if method == "initialize" else self._modern.answer
        return _refuses_envelope if is_modern else self._legacy.on_request

    async def _take_again(self, said: HeardLine) -> None:
        """Process the early lines one at a time, as the client got its replies. A line that was not answered is new."""
        if not said.is_answered:
            await self._take(said.line)
            return
        message, heard = await self._gate.read(said.line), _HeardAgain(said, self._out)
        if isinstance(message, JSONRPCRequest):
            # Handled whatever else is in progress, because the client already has the answer.
            self._answer(message, heard, heard.answered)
            await heard.is_settled.wait()


class _HeardAgain:
    """The way back for a request answered early: compares what the client already has, and does not resend it."""

    def __init__(self, said: HeardLine, out: PipeWriter) -> None:
        self._said = said
        self._out = out
        self.is_settled = asyncio.Event()

    def tell(self, message: Message) -> None:
        notice = self._said.notice
        if self.is_settled.is_set() or notice is None or message.get("method") != notice["method"]:
            self._out.tell(message)
        else:
            self._settle(message.get("params") == notice["params"])

    async def drained(self) -> None:
        await self._out.drained()

    def answered(self, outcome: Outcome | None) -> None:
        if not self.is_settled.is_set():
            self._settle(_but_extensions(outcome) == _but_extensions(self._said.result))
        elif outcome is not None and self._said.id is not None:
            self._out.tell(response(self._said.id, outcome), self._said.id)

    def _settle(self, is_same: bool) -> None:
        self.is_settled.set()
        if not is_same and not self._said.is_from_before:
            logger.error("A request was answered early, and not as the server answers it. Please report this.")


def _but_extensions(outcome: Any) -> Any:
    """A greeting without its extensions: an early one declares all, because the servers are not known yet."""
    capabilities = outcome.get("capabilities") if isinstance(outcome, Mapping) else None
    if not isinstance(capabilities, Mapping) or "extensions" not in capabilities:
        return outcome
    return {**outcome, "capabilities": {key: value for key, value in capabilities.items() if key != "extensions"}}


def _has_envelope(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, Mapping) and types.PROTOCOL_VERSION_META_KEY in meta


async def _refuses_envelope(_context: Any, _method: str, _params: Mapping[str, Any] | None) -> dict[str, Any]:
    raise MCPError(types.INVALID_REQUEST, _LEGACY_ONLY)


async def _refuses_handshake(_context: Any, _method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    asked, supported = (params or {}).get("protocolVersion"), {"supported": list(MODERN_PROTOCOL_VERSIONS)}
    data = {**supported, "requested": asked} if isinstance(asked, str) else supported
    raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, _MODERN_ONLY, data)
