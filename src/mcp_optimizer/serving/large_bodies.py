"""Writes large values of a result into the body of an HTTP response, in pieces, bypassing the SDK.

The SDK turns a response into one text and sends it at once: fifty megabytes, several times over. So `leave_large` takes
large values out of a result before the SDK sees it, and `LargeBodies` inserts them as the response passes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.largejson.raw import Placeholders
from mcp_optimizer.relay.connected import is_http

_SCOPE_KEY = "mcp_optimizer.large"


async def leave_large(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware of the MCP server: large values stay with the HTTP request."""
    result = await call_next(ctx)
    large = ctx.request.scope.get(_SCOPE_KEY) if is_http(ctx.request) else None
    return large.take(result) if large is not None and isinstance(result, dict) else result


def has_left(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether part of the result stays with the request, so the result can be sent only on it."""
    return is_http(ctx.request) and bool(ctx.request.scope.get(_SCOPE_KEY))


class LargeBodies:
    """An ASGI middleware: replaces placeholders by the values left with the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        large = Placeholders()

        async def fill(message: Message) -> None:
            if not large:
                await send(message)
            elif message["type"] == "http.response.start":
                # The length is that of the text with placeholders; without a length, the body is sent in chunks.
                headers = [header for header in message["headers"] if header[0] != b"content-length"]
                await send({**message, "headers": headers})
            elif message["type"] == "http.response.body":
                for piece in large.filled(message.get("body", b"")):
                    await send({**message, "body": piece, "more_body": True})
                    # A client that reads fast would never make us wait, nor let others run.
                    await asyncio.sleep(0)
                await send({**message, "body": b""})
            else:
                await send(message)

        scope = {**scope, _SCOPE_KEY: large}
        try:
            await self._app(scope, receive, fill)
        finally:
            # A later result goes out on another response and must be complete.
            del scope[_SCOPE_KEY]
