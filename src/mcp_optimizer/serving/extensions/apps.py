"""MCP Apps: hosts are told that servers have pages. Everything else about pages is in tools, results and resources:
`gateway/app_pages`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from mcp.server.context import CallNext, HandlerResult

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import APPS
from mcp_optimizer.serving.extensions.announcing import Method, Settings
from mcp_optimizer.serving.relay.connected import Context


class Apps:
    """Declares the extension, which adds no method."""

    identifier = APPS
    methods: Mapping[str, Method] = {}
    is_modern_only = False

    def __init__(self, has_pages: Callable[[Caller], bool]) -> None:
        """`has_pages`: whether a caller may call a tool with a page. Most servers with pages declare nothing."""
        self._has_pages = has_pages

    def declared(self, settings: Iterable[Settings], caller: Caller) -> Settings | None:
        return {} if any(True for _ in settings) or self._has_pages(caller) else None

    def listening(self, ctx: Context, call_next: CallNext, caller: Caller) -> Awaitable[HandlerResult]:
        del caller
        return call_next(ctx)
