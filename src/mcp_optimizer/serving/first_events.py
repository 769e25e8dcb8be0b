"""Delays the empty event that opens a legacy stream until it is needed.

The event tells a client where to resume if the stream breaks before anything else was sent. A response that comes at
once has its own id and is cheaper without it, and simple clients fail on an event without data.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HELD = 0.25
"""Seconds."""

_HOLD_KEY = "mcp_optimizer.first_event"


class _Hold:
    """Whether the event of one request is still delayed."""

    def __init__(self) -> None:
        self.is_over = False

    def end(self) -> None:
        self.is_over = True


def release_first_event(scope: Scope) -> None:
    """This request has already waited: do not delay its first event."""
    if (hold := scope.get(_HOLD_KEY)) is not None:
        hold.end()


class HeldFirstEvents:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, seconds: float = _HELD) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        hold = _Hold()
        scope[_HOLD_KEY] = hold
        # A timer, because a task for each request would cost more than the event, which is nearly never sent.
        due: asyncio.TimerHandle | None = None
        releasing: asyncio.Task[None] | None = None
        held: Message | None = None
        has_begun = False

        def release() -> None:
            nonlocal releasing, held
            assert held is not None
            releasing, held = asyncio.ensure_future(send(held)), None

        async def pass_on(message: Message) -> None:
            nonlocal due, releasing, held, has_begun
            if not has_begun and not hold.is_over and _is_empty_event(message):
                has_begun, held = True, message
                due = asyncio.get_running_loop().call_later(self._seconds, release)
                return
            if releasing is not None:
                await asyncio.wait({releasing})
                releasing = None
            elif held is not None and due is not None:
                due.cancel()
                first, held = held, None
                if not message.get("body") and not message.get("more_body"):
                    # The stream ends without a response, and the client will ask for it.
                    await send(first)
            await send(message)

        try:
            await self._app(scope, receive, pass_on)
        finally:
            if due is not None:
                due.cancel()
            if releasing is not None:
                releasing.cancel()


def _is_empty_event(message: Message) -> bool:
    body: bytes = message.get("body", b"")
    return body.startswith(b"id: ") and b"\r\ndata: \r\n" in body and b"event:" not in body
