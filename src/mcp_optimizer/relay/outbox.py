"""Notifications waiting for one client outside its requests: in order, each change once, and bounded.

A client that does not read must neither take memory nor block anyone. Filled by announcements of changes and by servers
that send notifications outside a request; knows no transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

Send = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Outbox:
    """Notifications for one client. Adding one does not wait."""

    def __init__(self, send: Send, most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: OrderedDict[object, tuple[str, Mapping[str, Any] | None]] = OrderedDict()
        self._tasks = BackgroundTasks(logger, "Cannot notify a client of a change")
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self._is_closed:
            return
        # A notified client reads the current state, however often it changed before.
        self._waiting.setdefault(_change(method, params) or object(), (method, params))
        if len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
            self.dropped += 1
        if self._sending is None:
            self._sending = self._tasks.spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                _, (method, params) = self._waiting.popitem(last=False)
                await self._send(method, params)
        finally:
            # What waits behind something that failed, whatever it was about, is not lost for it.
            has_more = self._waiting and not self._is_closed
            self._sending = self._tasks.spawn(self._send_all()) if has_more else None

    def close(self) -> None:
        """The client is gone."""
        self._is_closed = True
        self._waiting.clear()
        self._tasks.cancel()


def _change(method: str, params: Mapping[str, Any] | None) -> object:
    """What a notification reports as changed; None if it reports anything else."""
    if method.endswith("/list_changed"):
        return method
    return (method, (params or {}).get("uri")) if method == "notifications/resources/updated" else None
