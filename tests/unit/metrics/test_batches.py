"""Events are written together, however many come while others are written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.metrics.recorder import Recorder
from tests.waiting import until

EVENT = Event(at=1_800_000_000.0, kind=EventKind.CALL, session="s", server="github", tool="create_issue")


class SlowStore:
    """Keeps batches; waits while `is_open` is not set."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.tried = 0
        self.is_open = asyncio.Event()

    async def write(self, events: Sequence[Event]) -> None:
        self.tried += 1
        await self.is_open.wait()
        self.batches.append(list(events))

    async def forget(self, before: float) -> int:
        return 0


async def test_what_happens_while_events_are_written_waits_for_more_and_is_written_at_the_end() -> None:
    store = SlowStore()

    async def given() -> SlowStore:
        return store

    recorder = Recorder(given, interval=0.2)
    recorder.start()
    recorder.record(EVENT)
    await until(lambda: store.tried == 1)
    recorder.record(EVENT)
    store.is_open.set()
    await until(lambda: recorder.written == 1)
    assert recorder.waiting == 1
    recorder.record(EVENT)
    await until(lambda: recorder.written == 3)
    recorder.record(EVENT)
    await recorder.stop()
    assert [len(batch) for batch in store.batches] == [1, 2, 1]
