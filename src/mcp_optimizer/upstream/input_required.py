"""A result that asks for more before it can be given, for a client whose era does not know such results.

In the newer era a server that needs the user, the client's model or its roots says so in its result, and is
called again with the answers. A client of the older era is asked in the middle of its call instead, and gets
the last result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.caller import Caller, ClientLink
from mcp_optimizer.errors import UpstreamRefusal
from mcp_optimizer.result_type import is_input_required
from mcp_optimizer.upstream.endings import RpcError
from mcp_optimizer.upstream.session import UpstreamSession

_MOST_ROUNDS = 20
"""A server that is never satisfied must not keep a client busy for ever."""


async def answered(
    call: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]], caller: Caller, session: UpstreamSession
) -> dict[str, Any]:
    """The result of a call, after its questions were answered, if the client cannot answer them itself."""
    result = await call({})
    link = caller.link
    if not is_input_required(result) or link is None or link.is_modern:
        return result
    for _ in range(_MOST_ROUNDS):
        requests = result.get("inputRequests")
        try:
            given = await _ask_all(requests if isinstance(requests, dict) else {}, link)
        except RpcError as error:
            raise UpstreamRefusal(session.name, error.code, error.message, error.data) from error
        state = result.get("requestState")
        result = await call({"inputResponses": given} | ({"requestState": state} if state is not None else {}))
        if not is_input_required(result):
            return result
    raise UpstreamRefusal(session.name, -32603, f"The server asked {_MOST_ROUNDS} times for more input.")


async def _ask_all(requests: Mapping[str, Any], link: ClientLink) -> dict[str, Any]:
    """One after the other: a user is not asked two things at once."""
    given: dict[str, Any] = {}
    for key, request in requests.items():
        details = request if isinstance(request, dict) else {}
        given[key] = await link.ask(str(details.get("method")), details.get("params") or {})
    return given
