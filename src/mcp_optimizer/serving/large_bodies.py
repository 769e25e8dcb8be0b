"""Writes large values of a result into the body of an HTTP response, in pieces, beside the SDK.

The SDK makes one text of a response, and sends it at once: fifty megabytes, several times over. So large values are
taken out of a result before the SDK sees it (`leave_large`), and put in as its response goes by (`LargeBodies`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.largejson.raw import Placeholders

_SCOPE_KEY = "mcp_optimizer.large"


async def leave_large(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware of the MCP server: what is large stays with the HTTP request."""
    result = await call_next(ctx)
    large = ctx.request.scope.get(_SCOPE_KEY) if isinstance(ctx.request, Request) else None
    return large.take(result) if large is not None and isinstance(result, dict) else result


def has_left(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether something of the result stays with the request, so that the result can be sent on no other."""
    return isinstance(ctx.request, Request) and bool(ctx.request.scope.get(_SCOPE_KEY))


class LargeBodies:
    """An ASGI middleware: puts what was left with the request where its placeholder stands."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        large = Placeholders()

        async def fill(message: Message) -> None:
            if not large:
                await send(message)
            elif message["type"] == "http.response.start":
                # Of the text with the placeholders; without a length, the body is sent in chunks.
                headers = [header for header in message["headers"] if header[0] != b"content-length"]
                await send({**message, "headers": headers})
            elif message["type"] == "http.response.body":
                for piece in large.filled(message.get("body", b"")):
                    await send({**message, "body": piece, "more_body": True})
                    # A client that reads quickly would never make us wait, nor let others run.
                    await asyncio.sleep(0)
                await send({**message, "body": b""})
            else:
                await send(message)

        scope = {**scope, _SCOPE_KEY: large}
        try:
            await self._app(scope, receive, fill)
        finally:
            # A result that comes later goes out on another response, and has to be whole.
            del scope[_SCOPE_KEY]
