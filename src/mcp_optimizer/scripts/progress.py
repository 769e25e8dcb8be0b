"""Tells a client how far its script is: after each call, but not more often than it is worth. Called by inner calls."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mcp_optimizer.domain.caller import Caller

_APART = 0.2
"""Seconds between two notifications."""


class Progress:
    """The progress of one script towards its caller's client, if that asked for it."""

    def __init__(self, caller: Caller) -> None:
        meta = caller.passed_on.get("_meta")
        self._token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        self._link = caller.link
        self._told_at = 0.0
        self._done = 0

    async def __call__(self, name: str) -> None:
        """One more call is done."""
        self._done += 1
        if self._token is None or self._link is None or (now := time.monotonic()) - self._told_at < _APART:
            return
        self._told_at = now
        told = {"progressToken": self._token, "progress": self._done, "message": f"call {self._done}: {name}"}
        await self._link.tell("notifications/progress", told)
