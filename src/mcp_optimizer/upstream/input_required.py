"""Handles input-required results for legacy clients, which do not know them.

A modern server that needs the user, the client's model or its roots says so in its result and is called again with the
answers. A legacy client is asked in the middle of its call instead, and gets the final result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.result_type import is_input_required
from mcp_optimizer.errors import UpstreamRefusal
from mcp_optimizer.upstream.endings import RpcError
from mcp_optimizer.upstream.questions import asked_by, named, refusal
from mcp_optimizer.upstream.session import UpstreamSession

_MOST_ROUNDS = 20
"""A server that is never satisfied must not keep a client busy forever."""

_MOST_QUESTIONS = 16
"""Maximum questions in one result."""


async def answered(
    result: dict[str, Any],
    call: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]],
    caller: Caller,
    session: UpstreamSession,
) -> dict[str, Any]:
    """The result of a call after the questions of its first result were answered, if the client cannot answer them
    itself. `call` is the same call with the answers.
    """
    link = caller.link
    if link is None:
        return result
    if link.is_modern:
        return _asking(result, link, session.name)
    link = asked_by(link, session.name)
    for _ in range(_MOST_ROUNDS):
        try:
            given = await _ask_all(_requests(result, session.name), link)
        except RpcError as error:
            raise UpstreamRefusal(session.name, error.code, error.message, error.data) from error
        state = result.get("requestState")
        result = await call({"inputResponses": given} | ({"requestState": state} if state is not None else {}))
        if not is_input_required(result):
            return result
    raise UpstreamRefusal(session.name, -32603, f"The server asked {_MOST_ROUNDS} times for more input.")


def _requests(result: Mapping[str, Any], server: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The requests in a result: by key, the method and its parameters."""
    requests = result.get("inputRequests")
    requests = requests if isinstance(requests, dict) else {}
    if len(requests) > _MOST_QUESTIONS:
        raise UpstreamRefusal(server, types.INVALID_PARAMS, f"The server asked {len(requests):,} questions at a time.")
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for key, request in requests.items():
        details = request if isinstance(request, dict) else {}
        params = details.get("params")
        found[key] = str(details.get("method")), params if isinstance(params, dict) else {}
    return found


def _asking(result: dict[str, Any], link: ClientLink, server: str) -> dict[str, Any]:
    """The result for a client that handles such results itself: only declared capabilities, in the server's name."""
    asked = {}
    for key, (method, params) in _requests(result, server).items():
        if (refused := refusal(link.capabilities, method, params)) is not None:
            text = f"The server asks for more than this client declared: {refused.message}"
            raise UpstreamRefusal(server, types.MISSING_REQUIRED_CLIENT_CAPABILITY, text)
        asked[key] = {**result["inputRequests"][key], "params": named(server, method, params)}
    return {**result, "inputRequests": asked} if asked else result


async def _ask_all(requests: Mapping[str, tuple[str, Mapping[str, Any]]], link: ClientLink) -> dict[str, Any]:
    """One after the other, because a user is not asked two things at once."""
    return {key: await link.ask(method, params) for key, (method, params) in requests.items()}
