"""Reads the bodies of requests: each within a time and a size, all large ones together within what they may take.

Called by the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

import mcp_types as types
from starlette.types import Receive, Scope

from mcp_optimizer.runtime.deadline import Deadline
from mcp_optimizer.runtime.moments import Moments
from mcp_optimizer.serving.gate import Gate, Refused
from mcp_optimizer.serving.held_bodies import HeldBody, RoomForBodies

WHOLE_KEY = "mcp_optimizer.whole"
"""The key that a request carries once all of it has arrived."""

_MOMENT = 0.25
"""Seconds in which nearly every body arrives that is not there at once."""

_DISCARDING = 5.0
"""Seconds for reading, and forgetting, the rest of a body that is too large."""


class RequestBodies:
    """Reads within the limits of a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._room = RoomForBodies(gate)
        self._moments = Moments(min(_MOMENT, gate.limits.request_seconds / 2))

    def held(self, caller: str) -> HeldBody:
        """The room that a caller's body will take until it is released."""
        return HeldBody(self._room, caller)

    def read(self, scope: Scope, receive: Receive, held: HeldBody) -> Awaitable[bytearray | None]:
        """The complete body; None if the client left."""
        # Nearly always all of it is there, and there is nothing to wait for.
        return self._received(receive, held) if WHOLE_KEY in scope else self._in_time(receive, held)

    async def _in_time(self, receive: Receive, held: HeldBody) -> bytearray | None:
        seconds = self._gate.limits.request_seconds
        try:
            with Deadline(seconds, self._moments):
                return await self._received(receive, held)
        except TimeoutError:
            text = f"The body of a request must arrive within {seconds:g} s."
            raise self._gate.refuse(Refused("slow", types.INVALID_REQUEST, text)) from None

    async def _received(self, receive: Receive, held: HeldBody) -> bytearray | None:
        most, body = self._gate.limits.request_bytes, bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                body.clear()
                await _discard(receive)
                text = f"A message may have {most:,} bytes."
                raise self._gate.refuse(Refused("size", types.INVALID_REQUEST, text))
            held.grow(len(body))
            if not message.get("more_body", False):
                return body


async def _discard(receive: Receive) -> None:
    """Read the rest of a body if that is quick: a client still sending when we close never sees our response."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARDING):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
