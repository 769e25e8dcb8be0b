"""Servers that are part of this program: each registers here, and calls of its tools go to it.

Filled by parts that stand above the gateway, which the gateway does not know. A server of the user's never loses its
name to one of these.
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
"""Called with the tool's own name, the arguments and the caller, who was permitted to call it; the complete result."""


class BuiltInServers:
    """Who answers for each built-in server. A call waits in the pool while a person is asked about it."""

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self._answers: dict[str, Answer] = {}

    def serve(self, server: str, answer: Answer) -> None:
        """Calls of this server's tools go to `answer` from now on."""
        self._answers[server] = answer

    def end(self, server: str) -> None:
        """The name is free for others."""
        self._answers.pop(server, None)

    def has(self, server: str) -> bool:
        return server in self._answers

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The result, limited and described by whoever made it; or, for a modern client, a question to its user."""
        params = {"name": tool, "arguments": arguments}
        return await self._pool.answer_here(server, params, caller, partial(self._answers[server], tool, arguments))

    async def answered(self, results: Results, call: Call, caller: Caller, ask: Ask) -> dict[str, Any]:
        """The result of a call that is permitted, within the limits and with its cost; `ask` asks a server of the
        user's.
        """
        if not self.has(call.server):
            return await results.answer(call, ask)
        result = await self.call(call.server, call.tool, call.arguments, caller)
        said = result.get("_meta") or {}
        # Of a result that was cut, read_result selects; its notice says so.
        if call.select is None or is_input_required(result) or RESULT_META_KEY in said:
            return result
        selected = await results.answer(call, partial(_given, result))
        return {**selected, "_meta": {**said, **(selected.get("_meta") or {})}}


async def _given(result: dict[str, Any]) -> dict[str, Any]:
    return result
