"""What several calls inside one request of a client share: the way to its user, and one count of progress.

Their client can be asked at any time: a legacy client during the call, a modern one through the result of its request,
which waits as a whole. A call whose own result asks for input is made again with the answers. Used by batches and by
scripts; knows neither.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.errors import InvalidRequest, UpstreamRefusal
from mcp_optimizer.upstream.questions import OwnQuestion
from mcp_optimizer.upstream.request_errors import RpcError

_MOST_ROUNDS = 20
"""Rounds of questions per call, because a server that is never satisfied must not keep a person busy forever."""

_MOST_QUESTIONS = 16

_PROGRESS_INTERVAL = 0.2
"""Seconds between two progress notifications."""


class NestedLink:
    """The link to a client for calls inside one of its requests. Has the key of the client itself, so that they use the
    client's own sessions and approvals.
    """

    def __init__(self, link: ClientLink, key: str) -> None:
        self._link = link
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
        # A server's question is named already, and the gateway's own questions name themselves.
        return await self._link.ask(method, OwnQuestion(params))

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._link.tell(method, params)

    async def release_streams(self) -> None:
        await self._link.release_streams()


def inner(caller: Caller, link: ClientLink | None) -> Caller:
    """The caller for calls inside its request: parts of the request that concern only itself are not passed on."""
    meta = caller.passed_on.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "progressToken"} if isinstance(meta, Mapping) else {}
    within = secrets.token_hex(8)
    passed_on = {"_meta": kept} if kept else {}
    return caller._replace(link=link, passed_on=passed_on, within=within, wants_tasks=False, is_parked=True)


async def answered(call: Callable[[Caller], Awaitable[dict[str, Any]]], caller: Caller) -> dict[str, Any]:
    """Makes a call, lets the client answer the questions in its results, and returns the final result."""
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


class Progress:
    """Reports the finished calls to the client, if it asked for progress."""

    def __init__(self, caller: Caller, total: int | None = None) -> None:
        meta = caller.passed_on.get("_meta")
        self._token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        self._link = caller.link
        self._total = {} if total is None else {"total": total}
        self._told_at = 0.0
        self._done = 0

    async def __call__(self, name: str) -> None:
        """Counts one more finished call."""
        self._done += 1
        if self._token is None or self._link is None or (now := time.monotonic()) - self._told_at < _PROGRESS_INTERVAL:
            return
        self._told_at = now
        said = f"call {self._done}: {name}"
        told = {"progressToken": self._token, "progress": self._done, **self._total, "message": said}
        await self._link.tell("notifications/progress", told)
