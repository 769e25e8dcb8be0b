"""JSON-RPC with one server: requests and responses, in plain objects, over any transport.

`messages` checks every message once; invalid ones are dropped and counted, and never raise. The content of valid
messages passes unchanged. A request remembers its client, so everything the server sends during it (progress, log
messages, questions) goes to that client. Used by the session and the transports; knows nothing of MCP's handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

import pydantic_core

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.domain.protocol import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_optimizer.largejson.compact_json import Written
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.diagnostics import Dropped
from mcp_optimizer.upstream.exchanges import Attribution, Deadlines, Exchange, OnNotice, OrderedNotices
from mcp_optimizer.upstream.messages import Answer, Id, Invalid, Notification, Question, is_id, read_message
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, ServerGone
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine

logger = logging.getLogger(__name__)

Message = dict[str, Any]

_REPLY_SECONDS = 30.0
"""Seconds for a server to accept a reply to its own request."""

_AN_ID = regex(rb'"id"\s*:\s*"?(\d{1,18})\b')


class Wire(Protocol):
    """Carries messages to the server; passes incoming ones to `Peer.receive`."""

    async def deliver(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send one message. May return only after its response was received, depending on the transport."""
        ...


def to_wire(message: Message) -> bytes:
    params = message.get("params")
    if params is not None and isinstance(arguments := params.get("arguments"), Written):
        return _around(arguments, message, params)
    try:
        return pydantic_core.to_json(message)
    except ValueError:
        # A lone surrogate is not valid text, but JSON can carry it, so it is passed on.
        return json.dumps(message, separators=(",", ":")).encode()


def _around(arguments: Written, message: Message, params: Mapping[str, Any]) -> bytes:
    """The message as JSON, around arguments that are JSON already."""
    # The mark is random, so nothing in the message can be mistaken for it.
    mark = secrets.token_hex(16)
    whole = to_wire({**message, "params": {**params, "arguments": mark}})
    return whole.replace(f'"{mark}"'.encode(), arguments.json)


class Peer:
    """Our side of one connection. `owner` is the client that owns the complete connection, if any."""

    def __init__(
        self,
        on_notice: OnNotice,
        owner: ClientLink | None = None,
        limits: Limits = DEFAULT_LIMITS,
        dropped: Dropped | None = None,
    ) -> None:
        self.closed = asyncio.Event()
        self.limits = limits
        self.heard_at = asyncio.get_running_loop().time()
        """When the server last sent a valid message."""
        self._on_notice = on_notice
        self._dropped = dropped or Dropped()
        self._wire: Wire | None = None
        self._last_id = 0
        self._exchanges: dict[int, Exchange] = {}
        self._deadlines = Deadlines(self._exchanges)
        self._attribution = Attribution()
        self._answering: dict[Id, asyncio.Task[None]] = {}
        self._asked = 0
        self._unread = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._tasks = BackgroundTasks(logger, "Cannot pass on a message", expected=(ExchangeLost, ServerGone, RpcError))
        self.own(owner)

    def own(self, owner: ClientLink | None) -> None:
        """Send messages that belong to no request to this client from now on."""
        self.owner = owner
        self._to_owner = OrderedNotices(owner.tell, self.limits.pending_notifications) if owner is not None else None

    def bind(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def is_idle(self) -> bool:
        return not self._exchanges

    @property
    def is_working(self) -> bool:
        """Whether the server has a request to answer, not counting streams that stay open."""
        return any(exchange.timeout is not None for exchange in self._exchanges.values())

    def awaits(self, number: int) -> bool:
        """Whether this request has no response yet."""
        exchange = self._exchanges.get(number)
        return exchange is not None and not exchange.answer.done()

    async def release_streams(self, number: int) -> None:
        """The server ended a request's stream before its response: deliver what came, then end the client's stream."""
        exchange = self._exchanges.get(number)
        if exchange is not None and exchange.link is not None:
            await exchange.told()
            await exchange.link.release_streams()

    # Sending.

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        *,
        headers: Mapping[str, str] | None = None,
        link: ClientLink | None = None,
        progress_token: Any = None,
    ) -> dict[str, Any]:
        """Send a request and wait for its raw result; any number may be in progress at once."""
        if self.closed.is_set() or self._wire is None:
            raise ServerGone
        self._last_id += 1
        number = self._last_id
        if progress_token is not None:
            # Two clients may use the same token; request numbers are unique.
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        exchange = self._exchanges[number] = Exchange(link, timeout, progress_token, self.limits, self._deadlines)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            await self._wire.deliver(message, headers or {})
            result = await exchange.answer
            if exchange.telling is not None:
                await exchange.told_all()
            return result
        except BaseException as error:
            if (late := exchange.give_up(method, error)) is not None:
                self._abandon(number, method, "it took too long")
                raise late from None
            if isinstance(error, asyncio.CancelledError):
                self._abandon(number, method, "the client cancelled it")
            raise
        finally:
            del self._exchanges[number]
            if link is not None and self.owner is None:
                self._attribution.ended(link)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        if self._wire is None or self.closed.is_set():
            return
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self._wire.deliver(message, headers or {})

    def _abandon(self, number: int, method: str, reason: str) -> None:
        """Tell the server that a request was cancelled; in the background, so that the caller need not wait."""
        if method in ("initialize", "server/discover") or self.closed.is_set():
            return
        if len(self._tasks) < self.limits.pending_notifications:
            self._tasks.spawn(self.notify("notifications/cancelled", {"requestId": number, "reason": reason}))

    # Receiving.

    def receive(self, message: Any, related: int | None = None) -> None:
        """Process one message; `related` is the request on whose stream it came, if known."""
        for single in self._batch(message) if isinstance(message, list) else (message,):
            read = read_message(single, self.limits)
            if isinstance(read, Invalid):
                self._refuse(read)
                continue
            self.heard_at = asyncio.get_running_loop().time()
            if isinstance(read, Answer):
                self._resolve(read)
            elif isinstance(read, Notification):
                self._notice(read.method, read.params, related)
            else:
                self._begin_answer(read, related)

    def _batch(self, messages: list[Any]) -> list[Any]:
        """The messages of a batch, as in revision 2025-03-26, up to the limit."""
        if len(messages) > self.limits.batch_messages:
            self._dropped("a batch has more messages than limits.batch_messages allows")
        return messages[: self.limits.batch_messages]

    def _refuse(self, invalid: Invalid) -> None:
        self._dropped(invalid.why)
        if invalid.id is not None:
            self._reply(invalid.id, RpcError(INVALID_REQUEST, invalid.why))

    def lose_overlong(self, line: OverlongLine) -> None:
        """Handle a message that was too long to be read."""
        self._dropped("a message is longer than limits.message_bytes allows")
        most = self.limits.message_bytes
        self._lose(line, f"its response is longer than {most:,} bytes (limits.message_bytes)")

    def lose_unreadable(self, line: bytes | bytearray) -> None:
        """Handle a message that is not readable JSON, for example because it is nested thousands of levels deep."""
        self._dropped("a message cannot be read")
        self._lose(OverlongLine.of(line), "its response cannot be read")

    def _lose(self, line: OverlongLine, why: str) -> None:
        """Fail the call that a lost message answers, if known, instead of letting it wait."""
        numbers = [int(found) for found in _AN_ID.findall(line.head)[:1] + _AN_ID.findall(line.tail)[-1:]]
        only = [*self._exchanges][:1] if len(self._exchanges) == 1 else []
        number = next((number for number in [*numbers, *only] if number in self._exchanges), None)
        if number is not None:
            self._exchanges[number].fail(ExchangeLost(why))

    def close(self) -> None:
        """Fail everything that waits for a response, because the connection has ended."""
        self.closed.set()
        self._has_room.set()
        if not self._exchanges:
            self._deadlines.stop()
        for exchange in self._exchanges.values():
            exchange.fail(ServerGone())
        for task in self._answering.values():
            task.cancel()

    def _resolve(self, answer: Answer) -> None:
        exchange = self._exchanges.get(answer.number)
        if exchange is None or exchange.answer.done():
            # The response to an abandoned call, or a second response.
            return
        if answer.error is not None:
            exchange.fail(answer.error)
        else:
            exchange.answer.set_result(answer.result)

    def _whose(self, related: int | None) -> Exchange | None:
        return self._attribution.whose(self._exchanges, related, is_shared=self.owner is None)

    def _notice(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        if method == "notifications/progress":
            exchange = self._exchanges.get(params["progressToken"])
            if exchange is not None:
                exchange.extend()
                if exchange.progress_token is not None:
                    exchange.tell(method, {**params, "progressToken": exchange.progress_token})
        elif method == "notifications/cancelled":
            asked = params.get("requestId")
            if is_id(asked) and (task := self._answering.get(asked)) is not None:  # type: ignore[arg-type]
                task.cancel()
        elif method.endswith("/list_changed") or method.startswith(
            ("notifications/resources/", "notifications/subscriptions/")
        ):
            self._on_notice(method, params)
        elif (exchange := self._whose(related)) is not None:
            exchange.tell(method, params)
        elif self._to_owner is not None:
            self._to_owner.put(method, params)

    # The server's questions.

    @property
    def is_crowded(self) -> bool:
        """Whether the server has left so many replies unread that nothing more should be read from it."""
        return not self._has_room.is_set()

    async def room(self) -> None:
        await self._has_room.wait()

    def _begin_answer(self, question: Question, related: int | None) -> None:
        if question.method == "ping":
            self._reply(question.id, {})
        elif question.id in self._answering:
            self._dropped("a request has the id of another one in progress")
        elif self._asked >= self.limits.pending_questions:
            refusal = "too many questions of this server are waiting for answers (limits.pending_questions)"
            self._reply(question.id, RpcError(INTERNAL_ERROR, refusal))
        else:
            task = self._tasks.spawn(self._answer(question, self._whose(related)))
            self._answering[question.id] = task
            task.add_done_callback(lambda _: self._answering.pop(question.id, None))

    async def _answer(self, question: Question, exchange: Exchange | None) -> None:
        """Answer a server's request by asking the client."""
        self._asked += 1
        try:
            self._reply(question.id, await self._ask(question.method, question.params, exchange))
        except RpcError as error:
            self._reply(question.id, error)
        except Exception:
            # A bug of ours, which is logged; the server must not wait for an answer because of it.
            self._reply(question.id, RpcError(INTERNAL_ERROR, "Cannot ask the client."))
            raise
        finally:
            self._asked -= 1

    async def _ask(self, method: str, params: Mapping[str, Any], exchange: Exchange | None) -> dict[str, Any]:
        link = exchange.link if exchange is not None else self.owner
        if link is None:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: no client can be asked on this connection")
        if exchange is None:
            return await link.ask(method, params)
        with exchange.asking():
            # Deliver earlier notifications before the question.
            await exchange.told()
            return await link.ask(method, params)

    def _reply(self, asked: Id, answer: Mapping[str, Any] | RpcError) -> None:
        """Send the reply to a server's request. While too many are unread, nothing more is read from the server."""
        message: Message = {"jsonrpc": "2.0", "id": asked}
        if isinstance(answer, RpcError):
            details = {"code": answer.code, "message": answer.message}
            message["error"] = details | ({"data": answer.data} if answer.data is not None else {})
        else:
            message["result"] = answer
        self._unread += 1
        if self._unread >= self.limits.pending_replies:
            self._has_room.clear()
        self._tasks.spawn(self._send_reply(message)).add_done_callback(self._reply_was_sent)

    async def _send_reply(self, message: Message) -> None:
        if self._wire is not None and not self.closed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPLY_SECONDS):
                    await self._wire.deliver(message, {})

    def _reply_was_sent(self, _task: asyncio.Task[None]) -> None:
        self._unread -= 1
        if self._unread < self.limits.pending_replies:
            self._has_room.set()
