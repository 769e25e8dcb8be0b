"""Requests that were refused before anybody was known: at most one entry a minute for each reason, with a count.

Anybody can send a million of them, and must not fill the audit with that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mcp_optimizer.domain.audit import AuditEntry

_WINDOW = 60.0
_MOST_REASONS = 64
_OTHER = "other reasons"


class Refusals:
    """Counts by reason. The first is told at once, those that follow together."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[int, str], tuple[float, int]] = {}

    def refused(self, status: int, reason: str) -> Iterator[AuditEntry]:
        """The entries that are due now, with this one counted."""
        now = self._clock()
        key = (status, reason)
        if key not in self._counts and len(self._counts) >= _MOST_REASONS:
            key = (status, _OTHER)
        since, count = self._counts.get(key, (-_WINDOW, 0))
        if now - since >= _WINDOW:
            self._counts[key] = (now, 0)
            yield _entry(now, key, count + 1)
        else:
            self._counts[key] = (since, count + 1)

    def due(self, *, at_the_end: bool = False) -> Iterator[AuditEntry]:
        """The entries whose minute is over, or all of them; reasons that nobody gives any more are forgotten."""
        now = self._clock()
        for key, (since, count) in list(self._counts.items()):
            if at_the_end or now - since >= _WINDOW:
                del self._counts[key]
                if count:
                    yield _entry(now, key, count)
                    self._counts[key] = (now, 0)


def _entry(now: float, key: tuple[int, str], count: int) -> AuditEntry:
    status, reason = key
    return AuditEntry(
        round(now * 1_000),
        caller="",
        method="http/refused",
        decision="deny",
        rule=reason,
        outcome=f"{status}, {count} times" if count > 1 else f"{status}",
    )
