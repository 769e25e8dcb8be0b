"""Memory that is no longer used is returned to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_optimizer.runtime import memory

# Freed blocks between used ones stay with the process until it is told to return them.
HOLD_AND_FREE = """
from benchmarks.processes import resident_mb
from mcp_optimizer.runtime import memory
memory.share_pools()
blocks = [bytes([1]) * 50_000 for _ in range(2_000)]
used = resident_mb()
del blocks[::2], blocks[: len(blocks) // 2]
freed = resident_mb()
memory.give_back()
print(used - freed, used - resident_mb())
"""


@pytest.mark.process
@pytest.mark.skipif(memory._glibc() is None, reason="this system has another C library")
def test_memory_that_was_freed_is_given_back() -> None:
    command = [sys.executable, "-c", HOLD_AND_FREE]
    before, after = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert after > max(before, 0) + 20


def test_on_another_system_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    memory.share_pools()
    memory.give_back()


# Only a full collection finds a cycle that has survived for a while.
LEAVE_A_CYCLE = """
import asyncio, gc, weakref
from mcp_optimizer.runtime.memory import kept_tidy
from tests.waiting import until

class Node: ...

async def main():
    gc.disable()
    async with kept_tidy(settled=0, interval=0.05):
        await until(gc.get_freeze_count, "what is there at the start is left alone")
        node = Node()
        node.itself = node
        left = weakref.ref(node)
        del node
        assert left() is not None
        await until(lambda: left() is None, "the cycle is found")
    print(len(asyncio.all_tasks()))

asyncio.run(main())
"""


@pytest.mark.process
def test_what_clients_leave_behind_is_found_while_the_gateway_serves() -> None:
    command = [sys.executable, "-c", LEAVE_A_CYCLE]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"


# Collections of everything are counted, whoever asks for them.
GROW_FOR_A_WHILE = """
import asyncio, gc
from mcp_optimizer.runtime.memory import LongLived, kept_tidy
from tests.waiting import until

async def main():
    gc.disable()
    whole = []
    gc.callbacks.append(lambda phase, about: whole.append(phase) if about["generation"] == 2 else None)
    async with kept_tidy(settled=0, interval=0.1):
        await until(gc.get_freeze_count, "what is there at the start is left alone")
        whole.clear()
        tools = LongLived()
        for step in range(1, 51):
            tools.grown(step * 10_000)
            await asyncio.sleep(0.01)
        assert not whole, "the catalog grew all the time"
        await until(lambda: whole, "everything is looked at again")

asyncio.run(main())
"""


@pytest.mark.process
def test_while_very_many_tools_are_loaded_the_regular_collection_waits() -> None:
    subprocess.run([sys.executable, "-c", GROW_FOR_A_WHILE], capture_output=True, text=True, check=True)
