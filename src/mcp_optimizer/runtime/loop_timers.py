"""Event-loop timers that cost almost nothing per call: slow operations, deadlines, and the loop's lag.

`SlowTimer` is one shared timer that calls back operations slower than a threshold. `Deadline` does the work of
`asyncio.timeout` in a third of its steps, for code that every call passes. `LoopLag` measures how late the loop is, a
delay that every request has in addition.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

Longer = Callable[[], None]


class SlowTimer:
    """Calls an operation's callback once if it lasts longer than `seconds`; at the latest after twice that time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._new: set[Longer] = set()
        self._old: set[Longer] = set()
        """Operations that began before the last check."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, longer: Longer) -> None:
        self._new.add(longer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def end(self, longer: Longer) -> None:
        self._new.discard(longer)
        self._old.discard(longer)

    def _look(self) -> None:
        late, self._old, self._new = self._old, self._new, set()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look) if self._old else None
        for longer in late:
            longer()


class Deadline:
    """`with Deadline(seconds, moments):` interrupts its task after `seconds` and raises TimeoutError.

    Only an operation slower than the threshold of `moments` gets a timer of its own. `seconds` must be at least twice
    that threshold.
    """

    __slots__ = ("_cancellations", "_ends_at", "_is_over", "_moments", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float, moments: SlowTimer) -> None:
        self._seconds = seconds
        self._moments = moments
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a deadline needs a task"
        self._task = task
        self._cancellations = task.cancelling()
        self._ends_at = asyncio.get_running_loop().time() + self._seconds
        self._moments.begin(self._take_longer)

    def _take_longer(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._ends_at, self._interrupt)

    def _interrupt(self) -> None:
        self._is_over = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._moments.end(self._take_longer)
        if self._timer is not None:
            self._timer.cancel()
        # If other code cancelled the task too, that cancellation wins.
        if self._is_over and self._task.uncancel() <= self._cancellations and kind is asyncio.CancelledError:
            raise TimeoutError from error


_LAG_EVERY = 0.5
"""Seconds between two measurements."""
_LAG_REMEMBERED = 30
"""Measurements that are kept: 15 seconds, the usual interval of monitors."""


class LoopLag:
    """Regularly measures how much later than planned the event loop runs its timer."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_LAG_REMEMBERED)
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = time.monotonic() + _LAG_EVERY
        self._handle = asyncio.get_running_loop().call_later(_LAG_EVERY, self._look)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    @property
    def longest(self) -> float:
        """The longest delay in the last 15 seconds, including the current one, in seconds."""
        late_now = time.monotonic() - self._due if self._handle is not None else 0.0
        return max(0.0, late_now, *self._seen)

    def _look(self) -> None:
        self._seen.append(max(0.0, time.monotonic() - self._due))
        self.start()
