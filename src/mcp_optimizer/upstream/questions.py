"""Checks and labels questions from servers to clients, and parks the calls that wait for a modern client's answers.

A client is asked only for declared capabilities, and every question contains the server's name from the server file,
which no server can choose. Called wherever a question goes to a client. Pure, except for `AskedBy`, which is a client
as one server sees it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.caller import Caller, ClientLink, LatestRecord
from mcp_optimizer.domain.extensions import ANSWERS, INPUT_REQUIRED
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.protocol import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from mcp_optimizer.errors import CallGone, CallNotWaiting
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.request_errors import RpcError

SERVER_META_KEY = "mcp-optimizer/server"
"""The key in the `_meta` of every question for the server that asks."""

ELICITATION, _SAMPLING = "elicitation/create", "sampling/createMessage"


class OwnQuestion(dict[str, Any]):
    """The parameters of a question by the gateway itself, whose text says so. No server can send this type."""


_FEATURES = {ELICITATION: "elicitation", _SAMPLING: "sampling", "roots/list": "roots"}
"""The capability that a client must declare for each kind of question."""

_SHOWN = ("title", "description")
"""The parts of a form that people read."""


def can_be_asked(capabilities: Mapping[str, Any]) -> bool:
    """Whether the client declared any capability for questions."""
    return any(isinstance(capabilities.get(feature), Mapping) for feature in _FEATURES.values())


def refusal(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> RpcError | None:
    """The error for a question that the client did not declare support for; None if it did."""
    declared = capabilities.get(_FEATURES.get(method, ""))
    if not isinstance(declared, Mapping):
        return RpcError(METHOD_NOT_FOUND, f"{method}: this client does not support it")
    mode = params.get("mode", "form")
    # A missing mode means a form.
    if method == ELICITATION and (not isinstance(mode, str) or mode not in (declared or {"form": {}})):
        return RpcError(INVALID_PARAMS, f"{method}: this client does not support the mode {str(mode)[:80]!r}")
    if method == _SAMPLING and ("tools" in params or "toolChoice" in params) and "tools" not in declared:
        return RpcError(INVALID_PARAMS, f"{method}: this client does not support tools in sampling")
    return None


def named(server: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The question with its server's name added: for programs in `_meta`, for people at the start of the text."""
    if isinstance(params, OwnQuestion):
        return dict(params)
    meta = params.get("_meta")
    asked = {**params, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META_KEY: server}}
    if method == ELICITATION:
        message = params.get("message")
        said = printable(message) if isinstance(message, str) else ""
        asked["message"] = f'The server "{printable(server)}" asks: {said}'
        if isinstance(form := params.get("requestedSchema"), Mapping):
            asked["requestedSchema"] = _legible(form)
    return asked


def _legible(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form without control characters in titles and descriptions, which could mislead its reader."""
    fields, shown = properties_of(form), _printable(form)
    if fields:
        shown["properties"] = {
            name: _printable(field) if isinstance(field, Mapping) else field for name, field in fields.items()
        }
    return shown


def _printable(part: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: printable(text) for key in _SHOWN if isinstance(text := part.get(key), str)}
    return {**part, **texts}


class AskedBy:
    """A client as one server sees it: asked only for declared capabilities, with the server's name in the question."""

    __slots__ = ("_link", "_server", "capabilities", "is_modern", "key", "log_level")

    def __init__(self, link: ClientLink, server: str) -> None:
        self._link = link
        self._server = server
        # Copied, because these never change and a call reads them several times.
        self.key, self.capabilities = link.key, link.capabilities
        self.is_modern, self.log_level = link.is_modern, link.log_level

    def under(self, key: str) -> AskedBy:
        """The same client and server, with another key."""
        other = AskedBy(self._link, self._server)
        other.key = key
        return other

    @property
    def lasting(self) -> ClientLink:
        return AskedBy(self._link.lasting, self._server)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if (refused := refusal(self.capabilities, method, params)) is not None:
            raise refused
        return await self._link.ask(method, named(self._server, method, params))

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._link.tell(method, params)

    async def release_streams(self) -> None:
        await self._link.release_streams()


def asked_by(link: ClientLink, server: str) -> ClientLink:
    """The client as this server sees it. May be applied repeatedly."""
    return link if isinstance(link, AskedBy) else AskedBy(link, server)


# Parks calls in which a legacy server has asked a question that a modern client has yet to answer. A modern client
# can be asked only through the response to its request. The question therefore becomes an input-required result, and
# the call to the server stays open until the client calls again with the answers. A parked call belongs to one client
# and waits for a limited time, and the number of parked calls is limited.

NameCall = Callable[[str], Awaitable[str]]
"""Returns an unguessable name for a call that begins to wait, for the principal with this id."""


async def random_name(_principal: str) -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class ParkingLimits:
    """How long a call waits for its client's answers, and how many calls may wait."""

    seconds: float = 300.0
    most: int = 256
    most_of_one: int = 32


_OLDER_ONLY = frozenset({"elicitationId", "task"})
"""Parameters of questions that exist only in legacy."""

_MOST_QUESTIONS = 16
"""Maximum questions of one call that wait for answers."""

_MOST_UNTOLD = 100
"""Maximum notifications kept for the client's next request; beyond that, the oldest are dropped."""

_LAST_WORDS = 5.0


@dataclass(frozen=True)
class Request:
    """A request to a server, without answers: a client that answers must repeat the same request."""

    server: str
    method: str
    params: Mapping[str, Any]

    @classmethod
    def of(cls, server: str, method: str, params: Mapping[str, Any]) -> Request:
        return cls(server, method, {key: value for key, value in params.items() if key not in ANSWERS})


@dataclass(frozen=True)
class Parked:
    """The server of a parked call, and how many seconds it has worked on the call without waiting for answers."""

    server: str
    seconds: float


class ParkedCalls:
    """The calls of all servers that are, or may become, parked."""

    def __init__(
        self, limits: ParkingLimits | None = None, *, are_known: bool = False, name: NameCall | None = None
    ) -> None:
        """`are_known`: whether each client has a key that no other client has, as on stdio."""
        self._limits = limits or ParkingLimits()
        self._name = name or random_name
        self._are_known = are_known
        self._by_state: dict[str, _Call] = {}
        self._asking: set[_Call] = set()

    def __len__(self) -> int:
        return len(self._by_state)

    def has_of(self, server: str) -> bool:
        """Whether a call of a server waits for a client."""
        return any(call.request.server == server for call in (*self._by_state.values(), *self._asking))

    async def begin(
        self, request: Request, caller: Caller, make: Callable[[Caller], Coroutine[Any, Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        """Make a call; returns its result, or its server's first question."""
        call = _Call(request, caller, self._may_ask, is_known=self._are_known)
        call.start(make(caller._replace(link=call, record=call.record)))
        return await self._next(call)

    async def go_on(self, request: Request, caller: Caller) -> dict[str, Any]:
        """Answer a parked call; returns its result, or its server's next question."""
        call = self._of(caller)
        if call is None or call.request != request:
            raise CallNotWaiting
        del self._by_state[caller.passed_on["requestState"]]
        call.resume(caller)
        if not call.questions:
            self._asking.discard(call)
        return await self._next(call)

    def of_a_part(self, caller: Caller) -> Caller:
        """The caller of a call within a request that waits as a whole: all such calls together count as a client."""
        link = caller.link
        if not isinstance(link, AskedBy) or self._are_known:
            return caller
        return caller.through(link.under(f"{link.key} {caller.within}"))

    def find(self, caller: Caller) -> Parked | None:
        """The parked call that this request continues, if any; raises the call's error if it failed meanwhile.

        Called before any lookup, because a server that died can no longer be found.
        """
        if caller.is_orphaned:
            raise CallGone
        call = self._of(caller) if self._by_state else None
        if call is None:
            return None
        if (error := call.error) is not None:
            del self._by_state[caller.passed_on["requestState"]]
            self._end(call)
            raise error
        return Parked(call.request.server, call.seconds)

    async def close(self) -> None:
        """End all calls that wait for answers, because the gateway stops."""
        calls = list(self._asking)
        self._by_state.clear()
        for call in calls:
            self._end(call)
        if calls:
            await asyncio.wait({call.task for call in calls}, timeout=_LAST_WORDS)

    def _of(self, caller: Caller) -> _Call | None:
        state = caller.passed_on.get("requestState")
        call = self._by_state.get(state) if isinstance(state, str) else None
        # Another client's state counts as unknown.
        return call if call is not None and call.owner == caller.key else None

    async def _next(self, call: _Call) -> dict[str, Any]:
        try:
            await call.news()
            state = "" if call.task.done() else await self._name(call.principal)
            # Wait again, because the server may have withdrawn its question meanwhile.
            await call.news()
        except asyncio.CancelledError:
            self._end(call)
            raise
        if call.task.done():
            self._asking.discard(call)
            return call.task.result()
        self._by_state[state] = call
        call.park(self._limits.seconds, lambda: self._expire(state))
        requests = {key: question.request for key, question in call.questions.items()}
        return {"resultType": INPUT_REQUIRED, "inputRequests": requests, "requestState": state}

    def _may_ask(self, call: _Call) -> bool:
        """Whether one more call may wait for its client; it then counts until it is answered or ends."""
        if call not in self._asking:
            of_one = sum(other.owner == call.owner for other in self._asking)
            if len(self._asking) >= self._limits.most or of_one >= self._limits.most_of_one:
                return False
            self._asking.add(call)
        return True

    def _expire(self, state: str) -> None:
        if (call := self._by_state.pop(state, None)) is not None:
            self._end(call)

    def _end(self, call: _Call) -> None:
        self._asking.discard(call)
        call.give_up()


@dataclass(frozen=True)
class _Question:
    request: Mapping[str, Any]
    answer: asyncio.Future[dict[str, Any]]

    def settle(self, answer: dict[str, Any] | RpcError) -> None:
        """Give the server its answer, unless it has just withdrawn the question."""
        if self.answer.done():
            return
        if isinstance(answer, RpcError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class _Call:
    """One call, and its client as the server sees it: a `ClientLink` that outlives individual requests."""

    def __init__(self, request: Request, caller: Caller, may_ask: Callable[[_Call], bool], *, is_known: bool) -> None:
        link = caller.link
        assert link is not None
        # Over HTTP, modern clients have no sessions that would distinguish two clients of the same name. A question
        # that may belong to either of two calls must not reach the wrong one, so each call counts as a client.
        self.key = link.key if is_known else f"{link.key} {secrets.token_hex(8)}"
        self.capabilities = link.capabilities
        self.is_modern = True
        self.log_level = link.log_level
        self.lasting = link.lasting
        self.request = request
        self.owner = caller.key
        self.principal = caller.principal.id
        self.record = LatestRecord(caller.record)
        self.questions, self.seconds = dict[str, _Question](), 0.0
        self.task: asyncio.Task[dict[str, Any]]
        self._may_ask = may_ask
        self._resumed_at = asyncio.get_running_loop().time()
        self._asked, self._asked_at = 0, 0.0
        self._link: ClientLink | None = link
        self._progress_token = _progress_token(caller)
        self._untold: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_MOST_UNTOLD)
        self._news = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None

    def start(self, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[dict[str, Any]]) -> None:
        if not task.cancelled():
            # Retrieve the exception, in case no client calls again.
            task.exception()
        self._news.set()

    @property
    def error(self) -> BaseException | None:
        """The error that the call failed with, if it did."""
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    async def news(self) -> None:
        """Wait for a result or a question, passing notifications to the client meanwhile."""
        while self._untold and self._link is not None:
            await self._tell(self._link, *self._untold.popleft())
        while not self.task.done() and not self.questions:
            self._news.clear()
            await self._news.wait()

    def park(self, seconds: float, expire: Callable[[], None]) -> None:
        """Note that the client has no open request; the call expires `seconds` after the last question."""
        self._link = None
        loop = asyncio.get_running_loop()
        self.seconds += loop.time() - self._resumed_at
        self._expiry = loop.call_at(self._asked_at + seconds, expire)

    def resume(self, caller: Caller) -> None:
        """Continue with the answers in the client's new request."""
        self._stop_clock()
        self._resumed_at = asyncio.get_running_loop().time()
        self._link = caller.link
        self.record.follow(caller.record)
        self._progress_token = _progress_token(caller)
        given = caller.passed_on.get("inputResponses")
        for key, answer in given.items() if isinstance(given, Mapping) else ():
            if isinstance(answer, dict) and (question := self.questions.pop(key, None)) is not None:
                question.settle(answer)

    def give_up(self) -> None:
        """Tell the server that the client does not answer, and cancel the call."""
        self._stop_clock()
        self._link = None
        for question in self.questions.values():
            if question.request["method"] == "elicitation/create":
                question.settle({"action": "cancel"})
            else:
                question.settle(RpcError(REQUEST_TIMEOUT, "The client did not answer."))
        self.questions.clear()
        # Cancel after the answers, because an answer after the end of its call would be lost.
        asyncio.get_running_loop().call_soon(self.task.cancel)

    def _stop_clock(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # The `ClientLink` that the server uses.

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if (refused := refusal(self.capabilities, method, params)) is not None:
            raise refused
        if len(self.questions) >= _MOST_QUESTIONS or not self._may_ask(self):
            raise RpcError(INTERNAL_ERROR, f"{method}: too many questions are waiting for answers. Ask again later.")
        loop = asyncio.get_running_loop()
        self._asked += 1
        self._asked_at = loop.time()
        key = f"q{self._asked}"
        asked = {"method": method, "params": _newer(named(self.request.server, method, params))}
        question = self.questions[key] = _Question(asked, loop.create_future())
        self._news.set()
        try:
            return await question.answer
        finally:
            # Even if the server withdrew the question.
            self.questions.pop(key, None)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/elicitation/complete":
            # Modern no longer has this notification; a client that visited the page calls again.
            return
        if self._link is None or self._untold:
            self._untold.append((method, params))
        else:
            await self._tell(self._link, method, params)

    async def _tell(self, link: ClientLink, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on through the currently open request, with that request's progress token."""
        if method == "notifications/progress":
            if self._progress_token is None:
                return
            params = {**params, "progressToken": self._progress_token}
        await link.tell(method, params)

    async def release_streams(self) -> None:
        if self._link is not None:
            await self._link.release_streams()


def _progress_token(caller: Caller) -> Any:
    meta = caller.passed_on.get("_meta")
    return meta.get("progressToken") if isinstance(meta, Mapping) else None


def _newer(params: Mapping[str, Any]) -> dict[str, Any]:
    """A question's parameters without the legacy-only ones."""
    kept = {key: value for key, value in params.items() if key not in _OLDER_ONLY}
    if isinstance(meta := kept.get("_meta"), Mapping):
        # A question within a result has no channel for progress.
        kept["_meta"] = {key: value for key, value in meta.items() if key != "progressToken"}
    return kept
