"""The memory that bodies of requests may take while they are read: all large ones together, one caller's half of it.

Knows no HTTP, and callers by their ids.
"""

from __future__ import annotations

from collections import Counter

import mcp_types as types

from mcp_optimizer.serving.gate import Gate, Refused

RETRY_AFTER = 1
"""Seconds after which somebody who was refused for want of room should try again."""

_FREE = 16_000
"""Bytes of each body that are not counted, so ordinary requests are always accepted."""

_AT_ONCE = 4
"""Bodies of the maximum size that may be read at the same time, half of them one caller's."""


class RoomForBodies:
    """What all bodies take together."""

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
    """What one body takes of the room that all large bodies share."""

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
