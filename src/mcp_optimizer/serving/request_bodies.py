"""Reads request bodies: each within a time and a size, and all large ones together within a shared memory limit.

One caller's bodies may take half of that. Called by the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable

import mcp_types as types
from starlette.types import Receive, Scope

from mcp_optimizer.runtime.loop_timers import Deadline, SlowTimer
from mcp_optimizer.serving.gate import Gate, Refused

WHOLE_KEY = "mcp_optimizer.whole"
"""The scope key that marks a request whose body has completely arrived."""

_MOMENT = 0.25
"""Seconds within which nearly every body arrives that is not there at once."""

_DISCARDING = 5.0
"""Seconds for reading and discarding the rest of a body that is too large."""


class RequestBodies:
    """Reads bodies within the limits of a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._room = RoomForBodies(gate)
        self._moments = SlowTimer(min(_MOMENT, gate.limits.request_seconds / 2))

    def held(self, caller: str) -> HeldBody:
        """The room that a caller's body will take until it is released."""
        return HeldBody(self._room, caller)

    def read(self, scope: Scope, receive: Receive, held: HeldBody) -> Awaitable[bytearray | None]:
        """The complete body; None if the client left."""
        # Nearly always the whole body is there, and nothing has to wait.
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


RETRY_AFTER = 1
"""Seconds after which a caller that was refused for lack of room should try again."""

_FREE = 16_000
"""Bytes of each body that are not counted, so that ordinary requests are always accepted."""

_AT_ONCE = 4
"""Bodies of the maximum size that may be read at the same time, half of them one caller's."""


class RoomForBodies:
    """The room that all bodies take together."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held = 0
        self._held_by: Counter[str] = Counter()

    def hold(self, caller: str, more: int) -> None:
        """Reserve room for more bytes of a caller's large bodies."""
        most = _AT_ONCE * self._gate.limits.request_bytes
        if more > 0 and (self._held + more > most or self._held_by[caller] + more > most // 2):
            refused = Refused("full", types.INTERNAL_ERROR, "Too many large requests at a time. Try again shortly.")
            refused.retry_after = RETRY_AFTER
            raise self._gate.refuse(refused)
        self._held += more
        self._held_by[caller] += more
        if not self._held_by[caller]:
            del self._held_by[caller]


class HeldBody:
    """The part of the shared room that one body takes."""

    def __init__(self, room: RoomForBodies, caller: str) -> None:
        self._room = room
        self._caller = caller
        self._counted = 0

    def grow(self, size: int) -> None:
        if size > _FREE:
            counted = size - _FREE
            self._room.hold(self._caller, counted - self._counted)
            self._counted = counted

    def release(self) -> None:
        if self._counted:
            self._room.hold(self._caller, -self._counted)
            self._counted = 0
