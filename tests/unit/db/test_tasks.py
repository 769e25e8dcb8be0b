"""The tasks that clients ask for, in the database that all gateways share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import TaskRows
from mcp_optimizer.domain.kept_results import KeptTask

NOW = round(time.time() * 1_000)
LATER = NOW + 86_400_000


@asynccontextmanager
async def opened(place: Path | str | None) -> AsyncIterator[TaskRows]:
    database = await open_database(place)
    try:
        yield TaskRows(database)
    finally:
        await database.close()


def kept(number: int, caller: str = "ada", until_ms: int = LATER) -> KeptTask:
    return KeptTask(f"{caller}-{number}", caller, "server", "own", "tool", "", False, until_ms)


async def test_a_caller_has_so_many_tasks_at_a_time_and_others_have_theirs(place: Path | str) -> None:
    async with opened(place) as rows:
        assert [await rows.add(kept(number), 3) for number in range(5)] == [True] * 3 + [False] * 2
        assert await rows.add(kept(1, "ben"), 3)
        assert await rows.find("ada-1", "ada") == kept(1)
        assert await rows.find("ada-1", "ben") is None
        assert await rows.find("ada-4", "ada") is None


async def test_a_task_whose_time_is_over_is_neither_found_nor_counted(place: Path | str) -> None:
    async with opened(place) as rows:
        assert [await rows.add(kept(number, until_ms=NOW - 1), 2) for number in range(4)] == [True] * 4
        assert await rows.find("ada-3", "ada") is None
        assert await rows.add(kept(5), 1)
        assert not await rows.add(kept(6), 1)


async def test_every_gateway_on_one_database_finds_a_task(place: Path | str) -> None:
    async with opened(place) as one, opened(place) as other:
        await one.add(kept(1), 3)
        assert await other.find("ada-1", "ada") == kept(1)
