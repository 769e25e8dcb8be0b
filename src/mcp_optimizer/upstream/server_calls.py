"""Handles clients' calls to one server: each wakes it if it rests, is admitted, and gets its result.

A call is parked if a modern client must answer, agree or log in first. Only the gateway asks for a login, through the
client that called; a server never does. A modern server that needs input says so in its result; a legacy client is then
asked in the middle of its call, and gets the final result. Used by the supervisor, which knows the sessions of its
server and what an error means for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.extensions import is_input_required, is_task
from mcp_optimizer.domain.protocol import INPUT_REQUIRED_METHODS, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_optimizer.errors import CallNotWaiting, LoginRequired, OptimizerError, ServerBusy, UpstreamRefusal
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.questions import OwnQuestion, ParkedCalls, Request, asked_by, can_be_asked, named, refusal
from mcp_optimizer.upstream.request_errors import RpcError
from mcp_optimizer.upstream.session import UpstreamSession
from mcp_optimizer.upstream.tasks import TaskWaiting

# Whether a server is needed: what starts one that rests, and what lets one rest.

_LOOK = 60.0
"""Maximum seconds between two looks whether a server is still in use."""


class Demand:
    """The use of one server. One that never rests has an infinite `idle_timeout`."""

    def __init__(self, idle_timeout: float, in_use: Callable[[], bool]) -> None:
        """`in_use`: whether something depends on the session at this moment."""
        self._idle_timeout = idle_timeout
        self._in_use = in_use
        self._needed = asyncio.Event()
        self._adapted = asyncio.Event()
        self._used_at = time.monotonic()

    def adapt(self, idle_timeout: float) -> None:
        """Another time from now on."""
        self._idle_timeout = idle_timeout
        self._adapted.set()

    @property
    def is_needed(self) -> bool:
        return self._needed.is_set()

    def need(self) -> None:
        """Something needs the server: it is not to rest, or not any longer."""
        self._needed.set()
        self.use()

    def over(self) -> None:
        """Nothing needs the server; from now on, `need` is news."""
        self._needed.clear()

    def use(self) -> None:
        """The server was used now."""
        self._used_at = time.monotonic()

    async def arises(self) -> None:
        """Wait until something needs the server."""
        await self._needed.wait()

    async def ends(self) -> None:
        """Wait until nothing has needed the server for so long that it may rest; from then on, `need` is news."""
        self.use()
        while (left := self._used_at + self._idle_timeout - time.monotonic()) > 0:
            self._adapted.clear()
            # A server that never rests is not looked at, until its entry says another time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK) if left < math.inf else None):
                    await self._adapted.wait()
            if self._in_use():
                self.use()
        self._needed.clear()


# Limits how many calls to one server are in progress and waiting; each of several callers gets at most half of them.
# Without a limit, a slow server would fill the gateway's memory with calls whose callers have given up. Without
# shares, a caller that never stops calling would take every place.

_SMOOTHING = 0.1

_KEPT = 16
"""Callers that are kept without a call, because most will call again."""


class CallPlace(NamedTuple):
    """A place at a server, taken by a call."""

    caller: str
    began: float


@dataclass(slots=True)
class _Share:
    """One caller's calls to a server, and its limits."""

    most_under_way: int
    most_waiting: int
    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def enter(self) -> None:
        self.under_way += 1

    def leave(self) -> None:
        self.under_way -= 1


class Admission:
    """Admits calls to one server. A call holds a place between `begin` and `end`."""

    def __init__(self, server: str, most_under_way: int, most_waiting: int) -> None:
        self._server = server
        self._most_under_way = most_under_way
        self._most_waiting = most_waiting
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        """The callers that hold or wait for a place, in the order in which they get the next one, and some that did."""
        self._under_way = 0
        self._waiting = 0
        self._usual_seconds = 0.1
        self._emptied = asyncio.Event()

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def waiting(self) -> int:
        return self._waiting

    async def emptied(self) -> None:
        """Wait until no call is in progress or waiting."""
        while self._under_way or self._waiting:
            self._emptied.clear()
            await self._emptied.wait()

    async def begin(self, caller: str = "", *, is_one_of_many: bool = False) -> CallPlace:
        """Begin a call as soon as its caller can have a place. Raises ServerBusy if too many already wait.

        `is_one_of_many`: there may be other callers, so this one may take only half of the places.
        """
        share = self._shares.get(caller)
        if share is None:
            part = 2 if is_one_of_many else 1
            share = _Share(max(1, self._most_under_way // part), max(1, self._most_waiting // part))
            self._shares[caller] = share
        if self._has_place(share) and not share.waiting:
            self._enter(share)
        else:
            await self._turn(caller, share)
        return CallPlace(caller, time.monotonic())

    def end(self, place: CallPlace) -> None:
        """End a call, and free its place."""
        self._usual_seconds += _SMOOTHING * (time.monotonic() - place.began - self._usual_seconds)
        self._leave(place.caller)

    def _has_place(self, share: _Share) -> bool:
        return self._under_way < self._most_under_way and share.under_way < share.most_under_way

    def _enter(self, share: _Share) -> None:
        share.enter()
        self._under_way += 1

    async def _turn(self, caller: str, share: _Share) -> None:
        if self._waiting >= self._most_waiting or len(share.waiting) >= share.most_waiting:
            turns = 1 + self._waiting / self._most_under_way
            seconds = max(1.0, self._usual_seconds * turns)
            waiting = self._waiting
            self._forget_unused(caller)
            raise ServerBusy(self._server, self._under_way, waiting, seconds)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(place)
        self._waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # It was cancelled just as it got the place.
                self._leave(caller)
            elif place in share.waiting:
                share.waiting.remove(place)
                self._waiting -= 1
                self._forget_unused(caller)
            raise

    def _leave(self, caller: str) -> None:
        """Free a place, and give free places to waiting callers in turn."""
        self._shares[caller].leave()
        self._under_way -= 1
        if len(self._shares) > _KEPT:
            self._forget_unused(caller)
        for waiting in list(self._shares) if self._waiting else ():
            if self._under_way >= self._most_under_way:
                break
            self._pass_on(waiting)
        if not self._under_way and not self._waiting:
            self._emptied.set()

    def _pass_on(self, caller: str) -> None:
        """Give one free place to a caller, which then comes after all others."""
        share = self._shares[caller]
        while share.waiting and self._has_place(share):
            place = share.waiting.popleft()
            self._waiting -= 1
            if not place.done():
                self._enter(share)
                place.set_result(None)
                self._shares.move_to_end(caller)
                return

    def _forget_unused(self, caller: str) -> None:
        if len(self._shares) <= _KEPT:
            return
        share = self._shares.get(caller)
        if share is not None and not share.under_way and not share.waiting:
            del self._shares[caller]


_LOGIN_QUESTION = "elicitation/create"
_LOGIN_SECONDS = 300.0
"""Seconds for a person to log in after the client has shown the address."""

Call = Callable[[Caller], Awaitable[dict[str, Any]]]


class LoginInCall:
    """Logins to one server, made by the users of clients in the middle of their calls."""

    def __init__(self, authorization: Authorization | None, parked: ParkedCalls) -> None:
        self._authorization = authorization
        self._parked = parked
        self._under_way: dict[str, asyncio.Future[bool]] = {}
        """The login in progress of each client; its result is whether the login was made."""

    async def first(self, needed: LoginRequired, request: Request, caller: Caller, again: Call) -> dict[str, Any]:
        """Ask for the login that a call needs, then repeat the call; raises `needed` if no login is made."""
        authorization, link = self._authorization, caller.link
        if authorization is None or link is None:
            raise needed
        if refusal(link.capabilities, _LOGIN_QUESTION, {"mode": "url"}) is not None:
            raise needed
        after = partial(self._after_login, authorization, needed, again)
        # A modern client is asked by a result, and calls again after its user has answered.
        is_parked = link.is_modern and request.method in INPUT_REQUIRED_METHODS
        return await (self._parked.begin(request, caller, after) if is_parked else after(caller))

    async def _after_login(
        self, authorization: Authorization, needed: LoginRequired, again: Call, caller: Caller
    ) -> dict[str, Any]:
        assert caller.link is not None
        if not await self._logged_in(authorization, caller.link, needed.server):
            raise needed
        return await again(caller)

    async def _logged_in(self, authorization: Authorization, link: ClientLink, server: str) -> bool:
        """Whether the client's user has logged in. Concurrent calls share one question."""
        if (asked := self._under_way.get(link.key)) is not None:
            return await asyncio.shield(asked)
        asked = self._under_way[link.key] = asyncio.get_running_loop().create_future()
        try:
            asked.set_result(await _login_made(authorization, link, server))
            return asked.result()
        finally:
            del self._under_way[link.key]
            if not asked.done():
                # The call that asked was cancelled; the other calls fail with `LoginRequired`.
                asked.set_result(False)


async def once_approved(call: Call, caller: Caller) -> dict[str, Any]:
    """Make a call after a person has agreed to it, who is asked as if the server had asked."""
    assert caller.approval is not None
    await caller.approval(caller)
    return await call(caller._replace(approval=None, is_parked=True))


async def _login_made(authorization: Authorization, link: ClientLink, server: str) -> bool:
    try:
        async with authorization.offered() as offer:
            answer = await link.ask(_LOGIN_QUESTION, _login_question(server, offer.address))
            if answer.get("action") != "accept":
                return False
            async with asyncio.timeout(_LOGIN_SECONDS):
                await offer.done()
    except (RpcError, OptimizerError, TimeoutError):
        return False
    return True


def _login_question(server: str, address: str) -> OwnQuestion:
    said = f'mcp-optimizer asks: Log in to the server "{printable(server)}", and the call goes on.'
    return OwnQuestion(mode="url", elicitationId=uuid.uuid4().hex, url=address, message=said)


_MOST_ROUNDS = 20
"""Maximum rounds of input per call: a server that is never satisfied must not keep a client busy forever."""

_MOST_INPUTS = 16
"""Maximum questions in one result."""


async def with_input(
    result: dict[str, Any],
    call: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]],
    caller: Caller,
    session: UpstreamSession,
) -> dict[str, Any]:
    """The result of a call whose first result asks for input. A legacy client is asked here, and `call` repeats the
    call with the answers; a modern client gets the questions.
    """
    link = caller.link
    if link is None:
        return result
    if link.is_modern:
        return _for_modern_client(result, link, session.name)
    link = asked_by(link, session.name)
    for _ in range(_MOST_ROUNDS):
        try:
            given = await _ask_all(_input_requests(result, session.name), link)
        except RpcError as error:
            raise UpstreamRefusal(session.name, error.code, error.message, error.data) from error
        state = result.get("requestState")
        result = await call({"inputResponses": given} | ({"requestState": state} if state is not None else {}))
        if not is_input_required(result):
            return result
    raise UpstreamRefusal(session.name, -32603, f"The server asked {_MOST_ROUNDS} times for more input.")


def _input_requests(result: Mapping[str, Any], server: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The input requests in a result, by key: the method and its parameters."""
    requests = result.get("inputRequests")
    requests = requests if isinstance(requests, dict) else {}
    if len(requests) > _MOST_INPUTS:
        raise UpstreamRefusal(server, INVALID_PARAMS, f"The server asked {len(requests):,} questions at a time.")
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for key, request in requests.items():
        details = request if isinstance(request, dict) else {}
        params = details.get("params")
        found[key] = str(details.get("method")), params if isinstance(params, dict) else {}
    return found


def _for_modern_client(result: dict[str, Any], link: ClientLink, server: str) -> dict[str, Any]:
    """The result for a modern client, which answers the questions itself: checked and with the server's name added."""
    asked = {}
    for key, (method, params) in _input_requests(result, server).items():
        if (refused := refusal(link.capabilities, method, params)) is not None:
            text = f"The server asks for more than this client declared: {refused.message}"
            raise UpstreamRefusal(server, MISSING_REQUIRED_CLIENT_CAPABILITY, text)
        asked[key] = {**result["inputRequests"][key], "params": named(server, method, params)}
    return {**result, "inputRequests": asked} if asked else result


async def _ask_all(requests: Mapping[str, tuple[str, Mapping[str, Any]]], link: ClientLink) -> dict[str, Any]:
    """Ask one question after another, because a user should not be asked two things at once."""
    return {key: await link.ask(method, params) for key, (method, params) in requests.items()}


SessionFor = Callable[[ClientLink | None], Awaitable[UpstreamSession]]
"""Returns the session for a client's calls."""

Ask = Callable[[UpstreamSession, str, dict[str, Any], Caller], Coroutine[Any, Any, dict[str, Any]]]
"""Sends one request and returns its result."""


class ServerCalls:
    """Makes calls to one server, each from its admission to its result."""

    def __init__(
        self,
        server: str,
        admission: Admission,
        parked: ParkedCalls,
        login: LoginInCall,
        session_for: SessionFor,
        ask: Ask,
        task_seconds: float = 3_600.0,
    ) -> None:
        """`task_seconds`: the maximum for which a task is awaited."""
        self._server = server
        self._admission = admission
        self._parked = parked
        self._login = login
        self._session_for = session_for
        self._ask = ask
        self._tasks = TaskWaiting(server, self._asked_anew, task_seconds)

    async def task_result(self, method: str, params: dict[str, Any], task: dict[str, Any], caller: Caller) -> Any:
        """The result of a task that its client cannot ask for."""
        return await self._awaited(self._request(method, params), task, caller)

    async def make(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Make a call; returns its result, or its server's question."""
        if caller.link is not None:
            caller = caller.through(asked_by(caller.link, self._server))
        # A parked call takes no place: only a call with an open request of its client counts.
        principal = caller.principal
        place = await self._admission.begin(principal.id, is_one_of_many=principal.is_one_of_many)
        try:
            if caller.is_continuing or self._parked.find(caller) is not None:
                return await self._parked.go_on(self._request(method, params), caller)
            if caller.approval is not None:
                # If the user must agree first, a modern client is asked by a result, too.
                again = partial(once_approved, partial(self._anew, method, params))
                return await self._parked.begin(self._request(method, params), caller, again)
            return await self._answered(method, params, caller)
        finally:
            self._admission.end(place)

    async def _answered(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        link = caller.link
        try:
            session = await self._session_for(link)
            if link is None or not link.is_modern or session.agreement.is_modern:
                result = await self._ask(session, method, params, caller)
                if not is_task(result) or caller.wants_tasks:
                    return result
                return await self._awaited(self._request(method, params), result, caller)
            if caller.within:
                return await self._ask(session, method, params, self._parked.of_a_part(caller))
            if "requestState" in caller.passed_on:
                # Legacy servers issue no request states, and this one is not ours.
                raise CallNotWaiting
            if method not in INPUT_REQUIRED_METHODS or not can_be_asked(link.capabilities):
                return await self._ask(session, method, params, caller)
            ask = partial(self._ask, session, method, params)
            return await self._parked.begin(self._request(method, params), caller, ask)
        except LoginRequired as needed:
            again = partial(self._anew, method, params)
            return await self._login.first(needed, self._request(method, params), caller, again)

    async def _anew(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        result = await self._asked_anew(method, params, caller)
        return result if not is_task(result) or caller.wants_tasks else await self._tasks.result(result, caller)

    async def _asked_anew(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        return await self._ask(await self._session_for(caller.link), method, params, caller)

    async def _awaited(self, request: Request, task: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Wait for a task. A modern client that can be asked gets its questions by a result."""
        link = caller.link
        if link is None or not link.is_modern or not can_be_asked(link.capabilities) or caller.is_parked:
            return await self._tasks.result(task, caller)
        return await self._parked.begin(request, caller, partial(self._tasks.result, task))

    def _request(self, method: str, params: dict[str, Any]) -> Request:
        return Request.of(self._server, method, params)
