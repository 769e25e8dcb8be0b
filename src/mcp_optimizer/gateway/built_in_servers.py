"""Routes calls to built-in servers: each registers here, and calls of its tools go to it.

Used by the modules above the gateway that provide such servers; the gateway does not know them. A server configured by
the user never loses its name to a built-in one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.result_type import is_input_required
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.pipeline import RESULT_META_KEY, Ask, Results
from mcp_optimizer.upstream.pool import UpstreamPool

Answer = Callable[[str, Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]
"""Handles a call: takes the tool's own name, the arguments and the permitted caller; returns the complete result."""


class BuiltInServers:
    """The registered built-in servers and their handlers. A call waits in the pool while a person is asked about it."""

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self._answers: dict[str, Answer] = {}

    def serve(self, server: str, answer: Answer) -> None:
        """Send calls of this server's tools to `answer` from now on."""
        self._answers[server] = answer

    def end(self, server: str) -> None:
        """Unregister the server and free its name."""
        self._answers.pop(server, None)

    def has(self, server: str) -> bool:
        return server in self._answers

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The result, limited and described by that server; or, for a modern client, a question to its user."""
        params = {"name": tool, "arguments": arguments}
        return await self._pool.answer_here(server, params, caller, partial(self._answers[server], tool, arguments))

    async def answered(self, results: Results, call: Call, caller: Caller, ask: Ask) -> dict[str, Any]:
        """The result of a permitted call, within the limits and with its cost; `ask` calls a server that the user
        configured.
        """
        if not self.has(call.server):
            return await results.answer(call, ask)
        result = await self.call(call.server, call.tool, call.arguments, caller)
        said = result.get("_meta") or {}
        # A truncated result is selected from with read_result, as its notice says.
        if call.select is None or is_input_required(result) or RESULT_META_KEY in said:
            return result
        selected = await results.answer(call, partial(_given, result))
        return {**selected, "_meta": {**said, **(selected.get("_meta") or {})}}


async def _given(result: dict[str, Any]) -> dict[str, Any]:
    return result
