"""Requests to one server while they are in progress: their deadlines, clients, notifications and responses. Used by the
peer.

`Attribution` finds the request that a server's message belongs to if the transport does not say, as on stdio. The
message goes to the client whose calls are the only ones in progress, but not shortly after calls of another client,
which it may still be about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.request_errors import RpcTimeout

logger = logging.getLogger(__name__)

# Bounded queues of notifications: delivered in order to one client, or merged if only the last one matters.

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


def only_updates(notify: OnNotice) -> OnNotice:
    """Passes on which resources changed, and drops the rest: what is listed comes from another session."""

    def passed_on(method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/resources/updated":
            notify(method, params)

    return passed_on


_LAST_WORDS = 5.0
"""Seconds for the notifications of a finished request to reach their client before its result is sent."""

_RESOLUTION = 0.001
"""Seconds by which a timer may fire early."""


class Deadlines:
    """Interrupts the requests of one connection that take too long.

    All share one timer: nearly every request ends long before its deadline, and a timer of its own would cost more
    than sending it.
    """

    def __init__(self, exchanges: Mapping[int, Exchange]) -> None:
        self._exchanges = exchanges
        self._timer: asyncio.TimerHandle | None = None
        self.next_look = math.inf
        """When the requests are checked next, in the event loop's time."""

    def look_at(self, when: float) -> None:
        """Check the requests at this time at the latest."""
        if when < self.next_look:
            self.stop()
            self.next_look = when
            self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.next_look = None, math.inf

    def _look(self) -> None:
        self.stop()
        now = asyncio.get_running_loop().time() + _RESOLUTION
        for exchange in self._exchanges.values():
            if exchange.ends_at <= now:
                exchange.interrupt()
        self.look_at(min((exchange.ends_at for exchange in self._exchanges.values()), default=math.inf))


class Exchange:
    """One request in progress. With a `timeout`, it is interrupted after so many seconds without a sign of life, and
    after `call_seconds` at the latest. Must be created in the task that makes the request, which it cancels.
    """

    __slots__ = ("_asking", "_cancellations", "_deadlines", "_is_late", "_latest", "_limits", "_task", "answer",
                 "ends_at", "link", "progress_token", "telling", "timeout")  # fmt: skip

    def __init__(
        self, link: ClientLink | None, timeout: float | None, progress_token: Any, limits: Limits, deadlines: Deadlines
    ) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.link = link
        self.timeout = timeout
        self.progress_token = progress_token
        self._limits = limits
        now = loop.time()
        self._latest = now + limits.call_seconds
        self.ends_at = math.inf if timeout is None else min(now + timeout, self._latest)
        """When it is interrupted, in the event loop's time."""
        self._deadlines = deadlines
        if self.ends_at < deadlines.next_look:
            deadlines.look_at(self.ends_at)
        self._task = task = asyncio.current_task(loop)
        self._cancellations = task.cancelling() if task is not None else 0
        self._is_late = False
        self._asking = 0
        self.telling: OrderedNotices | None = None

    def interrupt(self) -> None:
        """Cancel the request's task because its time is up."""
        self.ends_at, self._is_late = math.inf, True
        if self._task is not None:
            self._task.cancel()

    def give_up(self, method: str, error: BaseException) -> RpcTimeout | None:
        """Abandon the request because of an error; returns the timeout, if that was the reason."""
        # If the task was also cancelled by other code, that cancellation counts.
        is_late = self._is_late and self._task is not None and self._task.uncancel() <= self._cancellations
        if not self.answer.cancel() and not self.answer.cancelled():
            # Retrieve the exception, because no other code will.
            self.answer.exception()
        if not isinstance(error, TimeoutError) and not (is_late and isinstance(error, asyncio.CancelledError)):
            return None
        if asyncio.get_running_loop().time() + _RESOLUTION >= self._latest:
            return RpcTimeout(method, self._limits.call_seconds, in_all=True)
        return RpcTimeout(method, self.timeout or 0.0)

    def extend(self) -> None:
        """Restart the timeout after a sign of life. It pauses while the client is being asked."""
        if self.timeout is None or self._is_late or self.answer.done():
            return
        now = asyncio.get_running_loop().time()
        self.ends_at = self._latest if self._asking else min(now + self.timeout, self._latest)
        self._deadlines.look_at(self.ends_at)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Pause the timeout while the client is being asked."""
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
        if self.telling is None:
            # Created on demand, because hardly any call has notifications.
            self.telling = OrderedNotices(self.link.tell, self._limits.pending_notifications)
        self.telling.put(method, params)

    async def told(self) -> None:
        """Wait until the client has received all notifications so far."""
        if self.telling is not None:
            await self.telling.told(_LAST_WORDS)

    async def told_all(self) -> None:
        """Wait until the client has received all notifications before the response, which met the deadline."""
        self.ends_at = math.inf
        await self.told()


_STILL_SPEAKING = 30.0
"""Seconds after the end of a client's calls during which a message may still be about them."""

_MOST_ENDED = 1_000


class Attribution:
    """Remembers which clients' calls ended recently, on a session that several clients share."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def ended(self, link: ClientLink) -> None:
        """Note the end of a request for this client."""
        key = link.key
        self._ended.pop(key, None)
        self._ended[key] = asyncio.get_running_loop().time()
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def whose(self, exchanges: Mapping[int, Exchange], related: int | None, *, is_shared: bool) -> Exchange | None:
        """The request a message belongs to: known from the transport, or obvious because all belong to one client."""
        if related is not None and (exchange := exchanges.get(related)) is not None and exchange.link is not None:
            return exchange
        with_client = [exchange for exchange in exchanges.values() if exchange.link is not None]
        keys = {exchange.link.key for exchange in with_client if exchange.link is not None}
        if len(keys) != 1 or (is_shared and self._may_be_of_another(next(iter(keys)))):
            return None
        return with_client[-1]

    def _may_be_of_another(self, key: str) -> bool:
        since = asyncio.get_running_loop().time() - _STILL_SPEAKING
        return any(other != key and at > since for other, at in self._ended.items())
