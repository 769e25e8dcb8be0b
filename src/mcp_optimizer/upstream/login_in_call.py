"""What a person must do before a call goes on: log in, or agree to it. They are asked through the client that called.

The question comes from the gateway, never from a server. Called by supervisors.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mcp_types.methods import INPUT_REQUIRED_METHODS

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.errors import LoginRequired, OptimizerError
from mcp_optimizer.runtime.terminal_text import printable
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.endings import RpcError
from mcp_optimizer.upstream.parked import ParkedCalls, Request
from mcp_optimizer.upstream.questions import OwnQuestion, refusal

_QUESTION = "elicitation/create"
_PATIENCE = 300.0
"""Seconds for a person to log in after the client has shown the address."""

Call = Callable[[Caller], Awaitable[dict[str, Any]]]


class LoginInCall:
    """Logins to one server, made by whoever called."""

    def __init__(self, authorization: Authorization | None, parked: ParkedCalls) -> None:
        self._authorization = authorization
        self._parked = parked
        self._under_way: dict[str, asyncio.Future[bool]] = {}
        """The login that each client is making, and whether it was made."""

    async def first(self, needed: LoginRequired, request: Request, caller: Caller, again: Call) -> dict[str, Any]:
        """The result of a call that is made again after the login that it needed; raises `needed` if there is none."""
        authorization, link = self._authorization, caller.link
        if authorization is None or link is None:
            raise needed
        if refusal(link.capabilities, _QUESTION, {"mode": "url"}) is not None:
            raise needed
        after = partial(self._after_login, authorization, needed, again)
        # A modern client is asked by a result, and calls again when its user has answered.
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
        """Whether the client's user has logged in. Calls at the same time share one question."""
        if (asked := self._under_way.get(link.key)) is not None:
            return await asyncio.shield(asked)
        asked = self._under_way[link.key] = asyncio.get_running_loop().create_future()
        try:
            asked.set_result(await _made(authorization, link, server))
            return asked.result()
        finally:
            del self._under_way[link.key]
            if not asked.done():
                # The one who asked is gone; the others are told to try again.
                asked.set_result(False)


async def once_approved(call: Call, caller: Caller) -> dict[str, Any]:
    """Make a call after a person has agreed to it, who is asked like the server would ask."""
    assert caller.approval is not None
    await caller.approval(caller)
    return await call(caller._replace(approval=None, is_parked=True))


async def _made(authorization: Authorization, link: ClientLink, server: str) -> bool:
    try:
        async with authorization.offered() as offer:
            answer = await link.ask(_QUESTION, _question(server, offer.address))
            if answer.get("action") != "accept":
                return False
            async with asyncio.timeout(_PATIENCE):
                await offer.done()
    except (RpcError, OptimizerError, TimeoutError):
        return False
    return True


def _question(server: str, address: str) -> OwnQuestion:
    said = f'mcp-optimizer asks: Log in to the server "{printable(server)}", and the call goes on.'
    return OwnQuestion(mode="url", elicitationId=uuid.uuid4().hex, url=address, message=said)
