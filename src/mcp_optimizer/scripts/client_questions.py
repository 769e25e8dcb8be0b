"""Connects a script's client to the servers that the script calls, so that a server can ask the client a question.

A legacy client is asked during the call. A modern client is asked through the result of its run_script request: a call
that needs input takes the answers from there and is made again. The script's clock is stopped meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.result_type import is_input_required
from mcp_optimizer.errors import InvalidRequest, UpstreamRefusal
from mcp_optimizer.scripts.scheduling import ScriptClock, ScriptTurn
from mcp_optimizer.upstream.questions import OwnQuestion
from mcp_optimizer.upstream.request_errors import RpcError

_MOST_ROUNDS = 20
"""Rounds of questions per call, because a server that is never satisfied must not keep a person busy forever."""

_MOST_QUESTIONS = 16


class ScriptLink:
    """The link to a script's client. It lasts as long as the script, whichever of the client's requests is open."""

    def __init__(self, link: ClientLink, key: str, clock: ScriptClock, turn: ScriptTurn) -> None:
        self._link = link
        self._clock = clock
        self._turn = turn
        self.key = key

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._link.capabilities

    @property
    def is_modern(self) -> bool:
        return self._link.is_modern

    @property
    def log_level(self) -> str | None:
        return self._link.log_level

    @property
    def lasting(self) -> ClientLink:
        return self._link.lasting

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._turn.ask()
        with self._clock.stopped():
            return await self._link.ask(method, params)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._link.tell(method, params)

    async def release_streams(self) -> None:
        await self._link.release_streams()


async def answered(call: Callable[[Caller], Awaitable[dict[str, Any]]], caller: Caller) -> dict[str, Any]:
    """Makes a call, lets the script's client answer the questions in its results, and returns the final result."""
    result = await call(caller)
    for _ in range(_MOST_ROUNDS):
        if not is_input_required(result) or caller.link is None:
            return result
        given = await _ask_all(result, caller.link)
        state = result.get("requestState")
        answers = {"inputResponses": given} | ({} if state is None else {"requestState": state})
        result = await call(caller._replace(passed_on={**caller.passed_on, **answers}))
    raise InvalidRequest(f"The server asked {_MOST_ROUNDS} times for more input.")


async def _ask_all(result: Mapping[str, Any], link: ClientLink) -> dict[str, Any]:
    """Asks one question after the other, so a user never sees two at once. Each question already names its server."""
    requests = result.get("inputRequests")
    given: dict[str, Any] = {}
    for key, request in list(requests.items())[:_MOST_QUESTIONS] if isinstance(requests, Mapping) else ():
        details = request if isinstance(request, Mapping) else {}
        params = details.get("params")
        try:
            asked = OwnQuestion(params if isinstance(params, Mapping) else {})
            given[key] = await link.ask(str(details.get("method")), asked)
        except RpcError as error:
            raise UpstreamRefusal("", error.code, error.message, error.data) from error
    return given
