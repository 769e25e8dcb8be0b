"""One request to a server while it is in progress: its deadline, its client, its response. Used by the peer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.notifications import InOrder

_LAST_WORDS = 5.0
"""Seconds for the notifications of a finished request to reach their client before its result is sent."""


class Exchange:
    """Ends after `timeout` seconds without a sign of life, and after `call_seconds` in any case, if set."""

    __slots__ = ("_asking", "_ends_at", "_most_untold", "_telling", "answer", "deadline", "link", "progress_token",
                 "timeout")  # fmt: skip

    def __init__(self, link: ClientLink | None, timeout: float | None, progress_token: Any, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.link = link
        self.timeout = timeout
        self.progress_token = progress_token
        self.deadline = asyncio.timeout(None if timeout is None else min(timeout, limits.call_seconds))
        self._asking = 0
        self._ends_at = loop.time() + limits.call_seconds
        self._telling: InOrder | None = None
        self._most_untold = limits.pending_notifications

    @property
    def was_long_enough(self) -> bool:
        """Whether it used the maximum duration of any call."""
        return asyncio.get_running_loop().time() >= self._ends_at

    def extend(self) -> None:
        """A sign of life: restarts the timeout. It pauses while the client is being asked."""
        if self.timeout is None or self.deadline.expired() or self.answer.done():
            return
        now = asyncio.get_running_loop().time()
        self.deadline.reschedule(self._ends_at if self._asking else min(now + self.timeout, self._ends_at))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While the client is being asked."""
        self._asking += 1
        self.extend()
        try:
            yield
        finally:
            self._asking -= 1
            self.extend()

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on, in order, without waiting for the client."""
        if self.link is None:
            return
        if self._telling is None:
            # Nearly no call has any.
            self._telling = InOrder(self.link.tell, self._most_untold)
        self._telling.put(method, params)

    async def told(self) -> None:
        """Wait until the client received everything that came before the response."""
        if self._telling is not None:
            await self._telling.told(_LAST_WORDS)
