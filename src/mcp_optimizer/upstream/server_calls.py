"""The calls of clients to one server: admitted, and parked where a person must answer, agree or log in first.

Made by the supervisor, which knows the sessions of its server and what an error means for it. Knows neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from mcp_types.methods import INPUT_REQUIRED_METHODS

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.errors import CallNotWaiting, LoginRequired
from mcp_optimizer.upstream.admission import Admission
from mcp_optimizer.upstream.login_in_call import LoginInCall, once_approved
from mcp_optimizer.upstream.parked import ParkedCalls, Request
from mcp_optimizer.upstream.questions import asked_by, can_be_asked
from mcp_optimizer.upstream.session import UpstreamSession

SessionFor = Callable[[ClientLink | None], Awaitable[UpstreamSession]]
"""The session that a client's calls take."""

Ask = Callable[[UpstreamSession, str, dict[str, Any], Caller], Coroutine[Any, Any, dict[str, Any]]]
"""Sends one request and returns its result."""


class ServerCalls:
    """Calls to one server, each from its admission to its result."""

    def __init__(
        self,
        server: str,
        admission: Admission,
        parked: ParkedCalls,
        login: LoginInCall,
        session_for: SessionFor,
        ask: Ask,
    ) -> None:
        self._server = server
        self._admission = admission
        self._parked = parked
        self._login = login
        self._session_for = session_for
        self._ask = ask

    async def make(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The result of a call, or the question of its server."""
        if caller.link is not None:
            caller = caller.through(asked_by(caller.link, self._server))
        # A parked call takes no place: its server works on it only while a request of its client is open.
        principal = caller.principal
        place = await self._admission.begin(principal.id, is_one_of_many=principal.is_one_of_many)
        try:
            if caller.is_continuing or self._parked.find(caller) is not None:
                return await self._parked.go_on(self._request(method, params), caller)
            if caller.approval is not None:
                # A modern client whose user must agree first is asked by a result, too.
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
                return await self._ask(session, method, params, caller)
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
        return await self._ask(await self._session_for(caller.link), method, params, caller)

    def _request(self, method: str, params: dict[str, Any]) -> Request:
        return Request.of(self._server, method, params)
