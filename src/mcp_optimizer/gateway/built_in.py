"""Servers that are this program itself: whoever answers for one registers here, and calls of its tools go there.

Filled by parts that stand above the gateway, which the gateway does not know. A server of the user's never loses its
name to one of these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.domain.caller import Caller

Answer = Callable[[str, Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]
"""Called with the tool's own name, the arguments and the caller, who was permitted to call it; the complete result."""


class BuiltInServers:
    """Who answers for each built-in server."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}

    def serve(self, server: str, answer: Answer) -> None:
        """Calls of this server's tools go to `answer` from now on."""
        self._answers[server] = answer

    def end(self, server: str) -> None:
        """The name is free for others."""
        self._answers.pop(server, None)

    def of(self, server: str) -> Answer | None:
        return self._answers.get(server)
