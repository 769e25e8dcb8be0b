"""The gateway's own stdin and stdout as message streams, read and written by the event loop itself.

The SDK uses threads, and each message would wait for three of them. Used only if both are pipes or sockets, which is
how clients start a server; the SDK handles anything else. Every line goes through the gate, and nothing is read from a
client that does not read its responses. Requests that were answered early are heard again, and their replies not sent.

What a client asks with `server/discover` decides nothing: some give up waiting for the answer and shake hands. The SDK
would refuse that, so it does not hear of the question.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_optimizer.largejson.raw import Placeholders, has_large
from mcp_optimizer.relay.sdk_calls import CALL, Outcome
from mcp_optimizer.runtime.line_reader import LineReader
from mcp_optimizer.serving.early_answers import NOTHING, EarlyAnswers, Heard, HeardLine
from mcp_optimizer.serving.first_requests import FirstRequests
from mcp_optimizer.serving.gate import ClientRequest, Gate, Refused
from mcp_optimizer.serving.message_lines import as_message, id_of, line_of, response_line
from mcp_optimizer.serving.pipes import CHUNK, Pipes, has_pipes, own_pipes
from mcp_optimizer.serving.stdio_lane import StdioLane
from mcp_optimizer.upstream.lines import Overlong, lines

logger = logging.getLogger(__name__)

_ROOM = 64 * 1024
"""Bytes in the pipe's buffer up to which more are written without waiting."""

_CALL = f'"{CALL}"'.encode()

_TURNS = 12
"""Turns of the event loop after which the SDK has begun to handle a message; it takes about half as many."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def message_streams(
    gate: Gate,
    early: EarlyAnswers | None = None,
    lane: StdioLane | None = None,
    opening: FirstRequests | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """The messages from stdin, and the stream to stdout. Takes over from `early`, if it has answered until now.

    `lane` answers what it takes; the rest is for whoever reads the messages.
    """
    if early is not None:
        streams = piped(gate, early.pipes, await early.stop(), lane, opening)
    elif has_pipes():
        streams = piped(gate, await own_pipes(), NOTHING, lane, opening)
    else:
        streams = stdio_server()
    async with streams as both:
        yield both


@asynccontextmanager
async def piped(
    gate: Gate,
    pipes: Pipes,
    heard: Heard = NOTHING,
    lane: StdioLane | None = None,
    opening: FirstRequests | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """The same for any pipes, of which `heard` was read already."""
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    client = _Client(gate, incoming, write_stream.clone(), pipes.writer, lane, opening)
    try:
        # Everything to be written is written to the end; nothing waits for further input.
        async with anyio.create_task_group() as writes, write_stream, anyio.create_task_group() as reads:
            writes.start_soon(_write, pipes.writer, outgoing, client)
            reads.start_soon(client.read, pipes.reader, heard)
            try:
                yield read_stream, write_stream
            finally:
                if lane is not None:
                    await lane.end()
                client.lane_ended()
            reads.cancel_scope.cancel()
    finally:
        pipes.close()


class _Client:
    """The one client on stdio: its incoming messages, and its requests in progress."""

    def __init__(
        self,
        gate: Gate,
        incoming: Incoming,
        replies: Outgoing,
        writer: asyncio.StreamWriter,
        lane: StdioLane | None = None,
        opening: FirstRequests | None = None,
    ) -> None:
        self._gate = gate
        self._opening = opening
        self._is_open = opening is not None
        """Whether the client has said nothing yet that decides its era."""
        self._incoming = incoming
        self._replies = replies
        # Open for longer than we read, because calls that are in progress then are still answered.
        self._lane_replies = replies.clone()
        self._writer = writer
        self._lane = lane
        self._turns_left = 0
        """Turns of the event loop in which a message may still be on its way through the SDK's streams."""
        self._under_way: set[types.RequestId] = set()
        self._wrote = asyncio.Event()
        self._repeated: HeardLine | None = None
        """The message that is heard again and whose reply the client has."""

    async def read(self, reader: LineReader, heard: Heard) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield heard.rest
            while chunk := await reader.read(CHUNK):
                yield chunk

        if self._lane is not None:
            reader.show_lines_to(self._took_call)
        # The replies end with the reading; otherwise the writer would wait for more.
        async with self._incoming, self._replies:
            for said in heard.said:
                await self._take_again(said)
            async for line in lines(chunks(), self._gate.limits.request_bytes, gives_up=False):
                refused = await self._take(line)
                # The next message may be hours away, and this one megabytes long.
                del line
                try:
                    if refused is not None and refused.wants_answer:
                        await self._replies.send(SessionMessage(refused.as_message()))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def _take(self, line: bytes | bytearray | Overlong) -> Refused | None:
        """Pass a message on, or return what to answer instead."""
        try:
            if isinstance(line, Overlong):
                text = f"A message may have {self._gate.limits.request_bytes:,} bytes."
                raise self._gate.refuse(Refused("size", types.INVALID_REQUEST, text, id_of(line)))
            if not line or line.isspace():
                return None
            message = await self._gate.read(line)
            self._admit(message)
        except Refused as refused:
            return refused
        while self._is_crowded:
            self._wrote.clear()
            await self._wrote.wait()
        if isinstance(message, JSONRPCRequest) and self._takes_short_way(message):
            return None
        try:
            if isinstance(message, JSONRPCRequest) and (discovery := self._discovery(message)) is not None:
                await self._replies.send(SessionMessage(as_message(message.id, discovery)))
                return None
            await self._incoming.send(SessionMessage(message))
            self._passed_on()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The server no longer listens. Reading ends with stdin, or with the server.
            return None
        return None

    def _discovery(self, message: JSONRPCRequest) -> dict[str, Any] | None:
        """The answer to a client that asks before it decides how to begin."""
        if self._opening is None or not self._is_open:
            return None
        asked = message.params if message.method == "server/discover" else None
        found = self._opening.discovery(asked) if asked is not None else None
        self._is_open = found is not None
        return dict(found) if found is not None else None

    def _took_call(self, line: bytes) -> bool:
        """Whether a line that arrived alone is a call, which was begun; anything else is read in its turn."""
        if _CALL not in line or self._is_crowded:
            return False
        message = self._gate.request(line)
        if message is None or self._refusal(message) is not None or not self._takes_short_way(message):
            return False
        self._under_way.add(_same(message.id))
        return True

    @property
    def _is_crowded(self) -> bool:
        """Whether the client leaves so many replies unread that nothing more should be read from it."""
        return self._replies.statistics().tasks_waiting_send >= self._gate.limits.pending_replies

    def _takes_short_way(self, message: ClientRequest | JSONRPCRequest) -> bool:
        """Whether the lane answers it. Not before what was said earlier has been heard."""
        if self._lane is None or self._turns_left or self._repeated is not None:
            return False
        return self._lane.takes(message, self._respond)

    def _passed_on(self) -> None:
        if self._lane is not None:
            if not self._turns_left:
                asyncio.get_running_loop().call_soon(self._turn)
            self._turns_left = _TURNS

    def _turn(self) -> None:
        self._turns_left -= 1
        if self._turns_left:
            asyncio.get_running_loop().call_soon(self._turn)

    async def _respond(self, request_id: types.RequestId, outcome: Outcome) -> None:
        """Send the response to a call of the lane: at once if nothing is being written, else in its turn."""
        if isinstance(outcome, types.ErrorData) or has_large(outcome) or not self._can_write_at_once():
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._lane_replies.send(SessionMessage(as_message(request_id, outcome)))
            return
        self._writer.write(response_line(request_id, outcome))
        self._under_way.discard(_same(request_id))
        self._wrote.set()

    def _can_write_at_once(self) -> bool:
        sending, pipe = self._lane_replies.statistics(), self._writer.transport
        is_idle = sending.tasks_waiting_receive and not sending.tasks_waiting_send
        return bool(is_idle) and not pipe.is_closing() and pipe.get_write_buffer_size() < _ROOM

    async def _take_again(self, said: HeardLine) -> None:
        """One at a time, as the client got its replies. What was not answered is new."""
        self._repeated = said if said.is_answered else None
        refused = await self._take(said.line)
        if self._repeated is None and refused is not None and refused.wants_answer:
            await self._replies.send(SessionMessage(refused.as_message()))
        elif refused is not None:
            self._settle(None)
        while self._repeated is not None:
            self._wrote.clear()
            await self._wrote.wait()

    def _settle(self, now: JSONRPCMessage | None) -> None:
        """What is answered now to a request that was answered early; None: it was refused."""
        before, self._repeated = self._repeated, None
        assert before is not None
        if isinstance(now, JSONRPCNotification) and before.notice == {"method": now.method, "params": now.params}:
            return
        result = now.result if isinstance(now, JSONRPCResponse) else None
        if result is not None and before.result == result:
            return
        logger.error("A request was answered early, and not as the server answers it. Please report this.")

    def _admit(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # A cancelled request is never answered.
            self._under_way.discard(_same((message.params or {}).get("requestId")))
            if self._lane is not None:
                self._lane.cancelled(message.params)
        if not isinstance(message, JSONRPCRequest):
            return
        # Whatever else is in progress: the client has the answer.
        if self._repeated is None and (refused := self._refusal(message)) is not None:
            raise self._gate.refuse(refused)
        self._under_way.add(_same(message.id))

    def _refusal(self, message: ClientRequest | JSONRPCRequest) -> Refused | None:
        """Why a request cannot begin now, if it cannot."""
        if _same(message.id) in self._under_way:
            # Not under that id, because it would be taken for the response to the other request.
            text = "Another request with this id is still in progress."
            return Refused("duplicate", types.INVALID_REQUEST, text)
        if len(self._under_way) >= (most := self._gate.limits.requests):
            text = f"{most:,} requests are in progress. Wait for responses before sending more."
            refused = Refused("busy", types.INTERNAL_ERROR, text, message.id)
            refused.retry_after = 1
            return refused
        return None

    def answered(self, message: JSONRPCMessage) -> bool:
        """A response is on its way to the client, which may then use the id again. False: the client has it already."""
        self._wrote.set()
        repeated = self._repeated
        if isinstance(message, JSONRPCNotification) and repeated is not None and repeated.notice is not None:
            if message.method != repeated.notice["method"]:
                return True
            self._settle(message)
            return False
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id is None:
            return True
        self._under_way.discard(_same(message.id))
        if repeated is None or _same(repeated.id) != _same(message.id):
            return True
        self._settle(message)
        return False

    def lane_ended(self) -> None:
        """No call of the lane is left to be answered."""
        self._lane_replies.close()

    def left(self) -> None:
        """The client reads no more, so no reply is to be waited for."""
        self._repeated = None
        self._wrote.set()


def _same(request_id: Any) -> types.RequestId:
    """Ids that the SDK considers the same: "7" and 7."""
    return str(request_id)


async def _write(
    writer: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage], client: _Client
) -> None:
    async with outgoing:
        async for item in outgoing:
            message, large = item.message, Placeholders()
            if not client.answered(message):
                continue
            if isinstance(message, JSONRPCResponse) and has_large(message.result):
                message = message.model_copy(update={"result": large.take(message.result)})
            try:
                for piece in large.filled(line_of(message)):
                    writer.write(piece)
                    await writer.drain()
                    if large:
                        # A client that reads fast would never make us wait, nor let others run.
                        await asyncio.sleep(0)
            except OSError:
                # The client no longer reads.
                client.left()
                return
