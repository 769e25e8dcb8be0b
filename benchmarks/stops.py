"""How long the event loop of this process stops, as a task sees it that sleeps for a millisecond at a time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

TICK = 0.001


@dataclass
class Stops:
    """By how many seconds each sleep was too long, and for how many of them this process was working.

    On a busy machine, a process also waits for a processor. Unless several of its threads work at once, it never works
    longer during a stop than the stop would last on an idle machine.
    """

    measured: list[tuple[float, float]] = field(default_factory=list)

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            started, at_work = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            stop = time.perf_counter() - started - TICK
            self.measured.append((stop, min(stop, time.process_time() - at_work)))

    @property
    def whole(self) -> list[float]:
        """The stops, shortest first."""
        return sorted(stop for stop, _ in self.measured)

    @property
    def work(self) -> list[float]:
        """What this process worked during each, least first."""
        return sorted(work for _, work in self.measured)


def quantile(ordered: list[float], part: float) -> float:
    """The value below which this part of them lies."""
    return ordered[int(len(ordered) * part)]
