"""What a million tasks in one PostgreSQL cost who adds or asks for one.

    python -m benchmarks.containment.million_tasks

A thousand callers have a thousand tasks each, first of the future and then of the past. Times are in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from tests.postgres import ask, find_programs, running_postgres

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import TaskRows
from mcp_optimizer.domain.kept_results import KeptTask

_A_MILLION = """
INSERT INTO task (id, caller, server, own_id, tool, selection, is_unchanged, until_ms)
SELECT 'task-' || n, 'caller-' || n % 1000, 'server', 'own-' || n, 'tool', '', 0, {until}
FROM generate_series(1, 1000000) AS n
"""
_ROUNDS = 100
_MOST = 1_000


async def measured(what: str, once: Callable[[int], Awaitable[object]]) -> None:
    """Print the median and the longest time."""
    times = []
    for number in range(_ROUNDS):
        began = time.perf_counter()
        await once(number)
        times.append((time.perf_counter() - began) * 1_000)
    print(f"{what:60}{sorted(times)[_ROUNDS // 2]:9.1f}{max(times):9.1f}")


def kept(number: int, caller: str) -> KeptTask:
    later = round(time.time() * 1_000) + 3_600_000
    return KeptTask(f"{caller}-{number}", caller, "server", "own", "tool", "", is_unchanged=False, until_ms=later)


async def main() -> None:
    programs = find_programs()
    if programs is None:
        sys.exit("PostgreSQL is not installed.")
    with running_postgres(programs) as postgres:
        url = postgres.new_database()
        database = await open_database(url)
        rows = TaskRows(database)
        print(f"{'':60}{'median':>9}{'longest':>9}")
        await measured("add, to an empty table", lambda n: rows.add(kept(n, "first"), _MOST))
        await asyncio.to_thread(ask, url, _A_MILLION.format(until=round(time.time() * 1_000) + 3_600_000))
        await measured("add, beside a million of a thousand others", lambda n: rows.add(kept(n, "second"), _MOST))
        await measured(
            "add, of a caller that has 1,000 already: refused", lambda n: rows.add(kept(n, "caller-7"), _MOST)
        )
        await measured("find, among a million", lambda n: rows.find(f"task-{n * 1000 + 7}", "caller-7"))
        await asyncio.to_thread(ask, url, "UPDATE task SET until_ms = 1 WHERE id LIKE 'task-%'")
        await measured(
            "add, when a million are over (1,000 deleted at each)", lambda n: rows.add(kept(n, "third"), _MOST)
        )
        await database.close()


if __name__ == "__main__":
    asyncio.run(main())
