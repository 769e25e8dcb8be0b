"""Limits how often a caller may call. Asked by the gateway before each call; knows nothing of what is called.

Each caller has a bucket that holds a minute's calls and refills steadily, so a burst passes and the rate holds. An act
that costs several calls needs only one call left and owes the rest, so even the lowest rate eventually permits it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import TooManyCalls

_MINUTE: Final = 60.0
_MOST_BUCKETS: Final = 10_000


class _Bucket:
    """The calls that one caller has left."""

    def __init__(self, left: float, now: float) -> None:
        self._left = left
        self._at = now

    def take(self, limit: int, now: float, calls: int) -> float | None:
        self._left = min(limit, self._left + (now - self._at) * limit / _MINUTE)
        self._at = now
        if self._left < 1:
            return (1 - self._left) * _MINUTE / limit
        self._left -= calls
        return None


class Rates:
    """The calls that every caller has left. `per_minute` applies to callers without their own rate; 0: no limit."""

    def __init__(
        self, per_minute: int = 0, *, clock: Callable[[], float] = time.monotonic, most: int = _MOST_BUCKETS
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def use(self, per_minute: int) -> None:
        """Change the default limit."""
        self._per_minute = per_minute

    def limit_of(self, principal: Principal) -> int:
        """How many calls a minute a caller may make; 0: any number."""
        own = principal.calls_per_minute
        return self._per_minute if own is None else own

    def take(self, principal: Principal, calls: int = 1) -> float | None:
        """Count calls: None if they may be made, otherwise the seconds until the next may. A refusal costs nothing."""
        limit = self.limit_of(principal)
        return self._take(principal, limit, calls) if limit > 0 else None

    def check(self, principal: Principal, calls: int = 1) -> None:
        """Count calls, or raise `TooManyCalls`."""
        limit = self.limit_of(principal)
        if limit > 0 and (wait := self._take(principal, limit, calls)) is not None:
            raise TooManyCalls(limit, wait)

    def _take(self, principal: Principal, limit: int, calls: int) -> float | None:
        now = self._clock()
        bucket = self._buckets.get(principal.id)
        if bucket is None:
            bucket = self._buckets[principal.id] = _Bucket(limit, now)
            if len(self._buckets) > self._most:
                # The caller that has been idle longest most likely has a full bucket, and a new bucket is full too.
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(principal.id)
        return bucket.take(limit, now, calls)
