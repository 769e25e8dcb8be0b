"""Writes large values of a result into the body of an HTTP response, in pieces, bypassing the SDK.

The SDK turns a response into one text and sends it at once: fifty megabytes, several times over. So `leave_large` takes
large values out of a result before the SDK sees it, and `LargeBodies` inserts them as the response passes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.largejson.raw import Placeholders, has_large

_SCOPE_KEY = "mcp_optimizer.large"


def leave_large(request: Request, result: dict[str, Any]) -> dict[str, Any]:
    """The result of a request without its large values, which stay with the request."""
    large = request.scope.get(_SCOPE_KEY)
    return large.take(result) if large is not None and has_large(result) else result


class LargeBodies:
    """An ASGI middleware: replaces placeholders by the values left with the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_SCOPE_KEY] = large = Placeholders()
        try:
            await self._app(scope, receive, lambda message: _filled(large, message, send) if large else send(message))
        finally:
            # A later result goes out on another response and must be complete.
            del scope[_SCOPE_KEY]


async def _filled(large: Placeholders, message: Message, send: Send) -> None:
    """Send a message of a response with its large values."""
    if message["type"] == "http.response.start":
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
