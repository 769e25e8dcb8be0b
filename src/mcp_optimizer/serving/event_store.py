"""Keeps events sent on legacy streams for clients that lose a stream and ask for the rest.

Kept for a limited time and up to a few megabytes for all sessions together; the oldest are dropped first. Each session
sees only its own events: streams are named after request ids, which every client counts from one.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import INTERNAL_ERROR, ErrorData

from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.serving.messages import Message, is_large, response

_SECONDS = 120.0
TOO_LARGE = "The connection broke, and the result was too large to keep. Call again, or request less at a time."
_EVENT = 256
"""Bytes that an event takes in addition to its result."""
_LONGEST_ID = 20
"""Maximum digits of an event's id."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values without contents of their own, which nearly all values have."""


@dataclass(frozen=True)
class _Kept:
    session: object
    stream: str
    message: Message | None
    size: int
    at: float


class KeptEvents:
    """The events of all sessions."""

    def __init__(
        self,
        seconds: float = _SECONDS,
        size: int = DEFAULT_LIMITS.kept_events,
        clock: Callable[[], float] = time.monotonic,
        mark: str = "",
    ) -> None:
        """`mark`: the prefix of this gateway's event ids, for sessions in which other gateways number events too."""
        self._seconds = seconds
        self._most = size
        self._clock = clock
        self._mark = f"{mark}-" if mark else ""
        self._events: OrderedDict[int, _Kept] = OrderedDict()
        self._last = 0
        self.size = 0

    def of_session(self) -> SessionEvents:
        """A new, empty store for one session's events."""
        return SessionEvents(self)

    def is_elsewhere(self, event_id: str) -> bool:
        """Whether an event was numbered by another gateway, or by an earlier process of this one."""
        mark, _, number = event_id.rpartition("-")
        return len(mark) == len(self._mark) - 1 and mark.isalnum() and number.isdecimal() and f"{mark}-" != self._mark

    def keep(self, session: object, stream: str, message: Message | None) -> str:
        self._last += 1
        kept = _Kept(session, stream, message, _size(message) + len(stream), self._clock())
        if kept.size <= self._most:
            self._events[self._last] = kept
            self.size += kept.size
        while self._events:
            oldest = next(iter(self._events.values()))
            if self.size <= self._most and kept.at - oldest.at <= self._seconds:
                break
            self._events.popitem(last=False)
            self.size -= oldest.size
        return f"{self._mark}{self._last}"

    def after(self, session: object, event_id: str) -> tuple[str, list[tuple[str, Message]]] | None:
        """The stream of an event, and the messages after it on that stream; None if the event is no longer known."""
        digits = event_id.removeprefix(self._mark)
        number = int(digits) if digits.isdecimal() and len(digits) <= _LONGEST_ID else 0
        last = self._events.get(number)
        if last is None or last.session is not session:
            return None
        following = [
            (f"{self._mark}{key}", kept.message)
            for key, kept in self._events.items()
            if key > number and kept.session is session and kept.stream == last.stream and kept.message is not None
        ]
        return last.stream, following


class SessionEvents:
    """The events of one session."""

    def __init__(self, events: KeptEvents) -> None:
        self._events = events

    def open_stream(self, stream: str) -> str:
        """Keep the empty event that opens a stream, and return its id."""
        return self._events.keep(self, stream, None)

    def keep(self, stream: str, message: Message) -> str:
        """Keep a message sent on a stream, and return its id. A message written in pieces is replaced by an error."""
        if is_large(message):
            message = response(message["id"], ErrorData(code=INTERNAL_ERROR, message=TOO_LARGE))
        return self._events.keep(self, stream, message)

    def after(self, event_id: str) -> tuple[str, list[tuple[str, Message]]] | None:
        """The stream of an event, and the messages after it; None if the event is not known."""
        return self._events.after(self, event_id)


def _size(message: Message | None) -> int:
    """The approximate size of an event; serializing it would cost as much as sending it."""
    return _EVENT + (_bytes_of(message) if message is not None else 0)


def _bytes_of(value: Any) -> int:
    """The size of a value with everything in it. Not recursive, because a result may be nested too deeply for that."""
    size, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is dict:
            size += sys.getsizeof(item)
            waiting.extend(item)
            waiting.extend(item.values())
        elif kind in _PLAIN:
            size += sys.getsizeof(item)
        elif isinstance(item, RawJson):
            size += len(item.json)
        else:
            size += sys.getsizeof(item)
            waiting.extend([*item, *item.values()] if isinstance(item, Mapping) else item if _is_list(item) else ())
    return size


def _is_list(item: Any) -> bool:
    return isinstance(item, list | tuple)
