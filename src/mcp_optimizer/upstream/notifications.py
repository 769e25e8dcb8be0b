"""Bounded queues of notifications: delivered in order to one client, or merged if only the last one matters."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

Tell = Callable[[str, Mapping[str, Any]], Awaitable[None]]
OnNotice = Callable[[str, Mapping[str, Any]], None]


def ignore_notice(_method: str, _params: Mapping[str, Any]) -> None:
    """Drop a notification."""


_APART = 0.2
"""Seconds between two notices of one kind; of those in between, only the last is passed on."""


class OrderedNotices:
    """Delivers notifications in order without making the sender wait; drops the oldest if there are too many."""

    def __init__(self, tell: Tell, most: int) -> None:
        self._tell = tell
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=most)
        self._tasks = BackgroundTasks(logger, "A server's notification could not reach its client")
        self._telling: asyncio.Task[None] | None = None

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        self._waiting.append((method, params))
        if self._telling is None or self._telling.done():
            self._telling = self._tasks.spawn(self._tell_all())

    async def _tell_all(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.popleft())

    async def told(self, seconds: float) -> None:
        """Wait until everything so far is delivered, or until the time is up."""
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=seconds)


class MergedNotices:
    """Passes the first notice of a kind on at once; of those that follow closely, only the last."""

    def __init__(
        self, notify: Callable[[str, Mapping[str, Any], str], None], most: int, whose: Callable[[], str] = str
    ) -> None:
        """`whose` returns the client, by key, for which the notices are, if it is one alone."""
        self._notify = notify
        self._most = most
        self._whose = whose
        self._held: dict[tuple[str, Any], Mapping[str, Any] | None] = {}

    def __call__(self, method: str, params: Mapping[str, Any]) -> None:
        uri = params.get("uri")
        kind = (method, uri if isinstance(uri, str) else None)
        if kind in self._held:
            self._held[kind] = params
        elif len(self._held) < self._most:
            self._pass_on(kind, params)

    def _pass_on(self, kind: tuple[str, Any], params: Mapping[str, Any]) -> None:
        self._held[kind] = None
        asyncio.get_running_loop().call_later(_APART, self._release, kind)
        self._notify(kind[0], params, self._whose())

    def _release(self, kind: tuple[str, Any]) -> None:
        if (params := self._held.pop(kind)) is not None:
            self._pass_on(kind, params)
