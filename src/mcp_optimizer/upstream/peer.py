"""JSON-RPC with one server: requests and their answers, in plain objects, whatever the wire.

Parsed once, written once, never validated: what passes through is not ours to judge. A request remembers the
client that it is made for, so that what the server says while it works on it (progress, log messages,
questions) goes back to that client. Knows nothing of MCP's handshakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import mcp_types as types
import pydantic_core

from mcp_optimizer.caller import ClientLink

logger = logging.getLogger(__name__)

Message = dict[str, Any]
OnNotice = Callable[[str, Mapping[str, Any]], None]

_MOST_UNTOLD = 1_000
"""Notifications that wait for one client; of more, the oldest are dropped, so that a client that does not read
costs no memory."""

_LAST_WORDS = 5.0
"""Seconds that notifications of a finished request have to reach their client before its result goes out."""


class RpcError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RpcTimeout(RpcError):
    """The server did not answer in time."""

    def __init__(self, method: str, timeout: float) -> None:
        super().__init__(types.REQUEST_TIMEOUT, f"{method} was not answered within {timeout:g} s")


class ConnectionLost(Exception):
    """There is no connection to the server any more."""


class Wire(Protocol):
    """Carries messages to the server; what comes back it hands to `Peer.receive`."""

    async def deliver(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send one message. May return only when its answer has been received, if that is how the wire works."""
        ...


def to_wire(message: Message) -> bytes:
    try:
        return pydantic_core.to_json(message)
    except ValueError:
        # Half a surrogate pair: no valid text, but JSON can carry it, and so it passes.
        return json.dumps(message, separators=(",", ":")).encode()


class _Exchange:
    """One request of ours under way."""

    __slots__ = ("_relaying", "_untold", "answer", "asking", "deadline", "link", "progress_token", "timeout")

    def __init__(self, link: ClientLink | None, timeout: float | None, progress_token: Any) -> None:
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.link = link
        self.timeout = timeout
        self.progress_token = progress_token
        self.deadline: asyncio.Timeout | None = None
        self.asking = 0
        self._untold: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_MOST_UNTOLD)
        self._relaying: asyncio.Task[None] | None = None

    def extend(self) -> None:
        """A sign of life: the time begins anew. While the client is being asked it stands still."""
        if self.deadline is None or self.timeout is None or self.deadline.expired():
            return
        when = None if self.asking else asyncio.get_running_loop().time() + self.timeout
        self.deadline.reschedule(when)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on, in order, without waiting for the client."""
        self._untold.append((method, params))
        if self._relaying is None or self._relaying.done():
            self._relaying = asyncio.create_task(self._relay())

    async def _relay(self) -> None:
        while self._untold and self.link is not None:
            await self.link.tell(*self._untold.popleft())

    async def told(self) -> None:
        """Wait until the client has heard everything that came before the answer."""
        if self._relaying is not None:
            await asyncio.wait({self._relaying}, timeout=_LAST_WORDS)


class Peer:
    """Our side of one connection. `owner`: the client that the whole connection belongs to, if it is only one's."""

    def __init__(self, on_notice: OnNotice, owner: ClientLink | None = None) -> None:
        self.closed = asyncio.Event()
        self.owner = owner
        self._on_notice = on_notice
        self._wire: Wire | None = None
        self._last_id = 0
        self._exchanges: dict[int, _Exchange] = {}
        self._answering: dict[Any, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def bind(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def is_idle(self) -> bool:
        return not self._exchanges

    def awaits(self, number: int) -> bool:
        """Whether this request has no answer yet."""
        exchange = self._exchanges.get(number)
        return exchange is not None and not exchange.answer.done()

    async def let_go(self, number: int) -> None:
        """The server ended the stream of a request before its answer, and will be asked for the rest."""
        exchange = self._exchanges.get(number)
        if exchange is not None and exchange.link is not None:
            await exchange.told()
            await exchange.link.let_go()

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
        """Send a request and wait for its raw result; any number may be under way at once."""
        if self.closed.is_set() or self._wire is None:
            raise ConnectionLost
        self._last_id += 1
        number = self._last_id
        if progress_token is not None:
            # Tokens of two clients may be the same; the number of the request never is.
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        exchange = self._exchanges[number] = _Exchange(link, timeout, progress_token)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            async with asyncio.timeout(timeout) as exchange.deadline:
                await self._wire.deliver(message, headers or {})
                result = await exchange.answer
            await exchange.told()
            return result
        except TimeoutError:
            self._abandon(number, method, "it took too long")
            raise RpcTimeout(method, timeout or 0.0) from None
        except asyncio.CancelledError:
            self._abandon(number, method, "the client cancelled it")
            raise
        finally:
            del self._exchanges[number]
            if exchange.answer.done() and not exchange.answer.cancelled():
                exchange.answer.exception()

    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        if self._wire is None or self.closed.is_set():
            return
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self._wire.deliver(message, headers or {})

    def receive(self, message: Any, related: int | None = None) -> None:
        """Take in one message; `related`: the request on whose stream it came, where the wire knows that."""
        if isinstance(message, list):
            # The revision of 2025-03-26 has batches.
            for single in message:
                self.receive(single, related)
            return
        if not isinstance(message, dict):
            return
        method = message.get("method")
        if not isinstance(method, str):
            self._resolve(message)
        elif "id" in message:
            self._begin_answer(message, method, related)
        else:
            self._notice(method, message.get("params") or {}, related)

    def close(self) -> None:
        """The connection is over: nobody may wait for an answer any more."""
        self.closed.set()
        for exchange in self._exchanges.values():
            if not exchange.answer.done():
                exchange.answer.set_exception(ConnectionLost())
        for task in self._answering.values():
            task.cancel()

    def _resolve(self, message: Message) -> None:
        number = message.get("id")
        with contextlib.suppress(TypeError, ValueError):
            number = int(number)  # type: ignore[arg-type]
        exchange = self._exchanges.get(number) if isinstance(number, int) else None
        if exchange is None or exchange.answer.done():
            return
        error = message.get("error")
        if error is None:
            result = message.get("result")
            exchange.answer.set_result(result if isinstance(result, dict) else {})
        else:
            details = error if isinstance(error, dict) else {"message": str(error)}
            code = details.get("code")
            exchange.answer.set_exception(
                RpcError(
                    code if isinstance(code, int) else types.INTERNAL_ERROR,
                    str(details.get("message") or "no message"),
                    details.get("data"),
                )
            )

    def _whose(self, related: int | None) -> _Exchange | None:
        """The request that the server speaks about: told by the wire, or plain because all are one client's."""
        if related is not None and (exchange := self._exchanges.get(related)) is not None and exchange.link is not None:
            return exchange
        with_client = [exchange for exchange in self._exchanges.values() if exchange.link is not None]
        keys = {exchange.link.key for exchange in with_client if exchange.link is not None}
        return with_client[-1] if len(keys) == 1 else None

    def _notice(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        if method == "notifications/progress":
            token = params.get("progressToken")
            exchange = self._exchanges.get(token) if isinstance(token, int) else None
            if exchange is not None:
                exchange.extend()
                if exchange.link is not None and exchange.progress_token is not None:
                    exchange.tell(method, {**params, "progressToken": exchange.progress_token})
        elif method == "notifications/cancelled":
            if (task := self._answering.get(params.get("requestId"))) is not None:
                task.cancel()
        elif method.endswith("/list_changed") or method.startswith(
            ("notifications/resources/", "notifications/subscriptions/")
        ):
            self._on_notice(method, params)
        elif (exchange := self._whose(related)) is not None:
            exchange.tell(method, params)
        elif self.owner is not None:
            self._spawn(self.owner.tell(method, params))

    def _begin_answer(self, message: Message, method: str, related: int | None) -> None:
        number, params = message["id"], message.get("params")
        params = params if isinstance(params, dict) else {}
        task = self._spawn(self._answer(number, method, params, self._whose(related)))
        self._answering[number] = task
        task.add_done_callback(lambda _: self._answering.pop(number, None))

    async def _answer(self, number: Any, method: str, params: Mapping[str, Any], exchange: _Exchange | None) -> None:
        """Answer a request of the server: pings ourselves, everything else by asking the client."""
        answer: Message = {"jsonrpc": "2.0", "id": number}
        try:
            answer["result"] = {} if method == "ping" else await self._ask(method, params, exchange)
        except RpcError as error:
            details = {"code": error.code, "message": error.message}
            answer["error"] = details | ({"data": error.data} if error.data is not None else {})
        if self._wire is not None and not self.closed.is_set():
            await self._wire.deliver(answer, {})

    async def _ask(self, method: str, params: Mapping[str, Any], exchange: _Exchange | None) -> dict[str, Any]:
        link = exchange.link if exchange is not None else self.owner
        if link is None:
            raise RpcError(types.METHOD_NOT_FOUND, f"{method}: no client can be asked on this connection")
        if exchange is None:
            return await link.ask(method, params)
        exchange.asking += 1
        exchange.extend()
        try:
            # What was said before the question is heard before it.
            await exchange.told()
            return await link.ask(method, params)
        finally:
            exchange.asking -= 1
            exchange.extend()

    def _abandon(self, number: int, method: str, reason: str) -> None:
        """Tell the server that nobody waits any more; not awaited, because whoever leaves may be in a hurry."""
        if method not in ("initialize", "server/discover") and not self.closed.is_set():
            self._spawn(self.notify("notifications/cancelled", {"requestId": number, "reason": reason}))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("A message could not be passed on: %s", error)
