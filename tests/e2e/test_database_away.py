"""A database that hangs, is full, locked, restarted or without connections: nobody waits, and nothing is lost.

Each fault begins while a gateway runs and lasts until the gateway has answered: whatever waited for it would not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.errors import InvalidRequest, RequestError
from mcp_optimizer.results.pipeline import RESULT_META_KEY
from tests.conftest import WriteServers, plain_server
from tests.postgres import Postgres, ask, find_programs, full_disk, running_postgres, without_connections
from tests.waiting import until

T = TypeVar("T")

ROWS = [{"id": number, "name": f"Person {number}"} for number in range(400)]
HANGS = 20.0
"""Seconds after which a call would never end."""
LONGEST = 2.0
"""Seconds that a call may wait for the database, beside what the machine takes."""


@dataclass
class Waits:
    """How long calls took, and how long they took meanwhile at a gateway that has no database to wait for."""

    calls: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    async def timed(self, call: Awaitable[T]) -> T:
        started = time.perf_counter()
        try:
            return await call
        finally:
            self.calls.append(time.perf_counter() - started)

    async def call_plainly(self, optimizer: Optimizer) -> None:
        """Until it is cancelled."""
        while True:
            started = time.perf_counter()
            await optimizer.call("echo", {"rows": ROWS})
            self.plain.append(time.perf_counter() - started)

    @property
    def were_short(self) -> bool:
        return bool(self.calls) and max(self.calls) < LONGEST + max(self.plain)


@asynccontextmanager
async def measured(config: Path) -> AsyncIterator[Waits]:
    """Waits of calls, beside a gateway that shares the machine and nothing else."""
    waits = Waits()
    async with Optimizer.from_config(config, database="none", max_tokens=300, encoder="none") as plain:
        calling = asyncio.create_task(waits.call_plainly(plain))
        try:
            await until(lambda: waits.plain)
            yield waits
            # A call that is under way counts, too: it may be what the machine is slow with.
            done = len(waits.plain)
            await until(lambda: len(waits.plain) > done, timeout=HANGS)
        finally:
            calling.cancel()
            await asyncio.wait({calling})
    assert waits.were_short, f"waited {max(waits.calls):.1f} s; without a database {max(waits.plain):.1f} s"


@asynccontextmanager
async def gateway(config: Path, place: object) -> AsyncIterator[Optimizer]:
    async with Optimizer.from_config(config, database=str(place), max_tokens=300, encoder="none") as optimizer:
        await optimizer.storage.opened()
        yield optimizer


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one", "--tools", 10)})


async def cut(optimizer: Optimizer) -> str:
    """The id of a result that was cut."""
    async with asyncio.timeout(HANGS):
        result = await optimizer.call("echo", {"rows": ROWS})
    about: dict[str, Any] = result["_meta"][RESULT_META_KEY]
    return str(about["resultId"])


async def rest(optimizer: Optimizer, result_id: str) -> str:
    async with asyncio.timeout(HANGS):
        page = await optimizer.read_result(result_id, search="Person 399")
    return str(page["content"][0]["text"])


@contextlib.contextmanager
def read_only(url: str) -> Iterator[None]:
    server, _, name = url.rpartition("/")
    ask(f"{server}/postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    drop_connections(url)
    try:
        yield
    finally:
        ask(f"{server}/postgres", f"ALTER DATABASE {name} RESET default_transaction_read_only")
        drop_connections(url)


@contextlib.contextmanager
def table_locked(url: str) -> Iterator[None]:
    """Somebody else holds a lock on the table and does not let go."""
    with _other_session(url, "BEGIN; LOCK TABLE kept_result IN ACCESS EXCLUSIVE MODE"):
        yield


@contextlib.contextmanager
def _other_session(url: str, statement: str) -> Iterator[None]:
    async def connect() -> asyncpg.Connection[Any]:
        connection = await asyncpg.connect(url)
        await connection.execute(f"SET search_path = mcp_optimizer; {statement}")
        return connection

    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(connect())
    try:
        yield
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


def drop_connections(url: str) -> None:
    ask(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


Fault = Callable[[str], AbstractContextManager[None]]


@pytest.mark.parametrize(
    "fault", ["stopped", *(pytest.param(other, marks=pytest.mark.full) for other in ("read-only", "full", "locked"))]
)
async def test_no_call_waits_for_the_database_and_no_rest_is_lost(
    fault: str, config: Path, postgres: Postgres, postgres_url: str
) -> None:
    faults: dict[str, Fault] = {
        "stopped": lambda _url: postgres.stopped(),
        "read-only": read_only,
        "full": full_disk,
        "locked": table_locked,
    }
    async with gateway(config, postgres_url) as optimizer, gateway(config, postgres_url) as other:
        before = await cut(optimizer)
        with await asyncio.to_thread(_Entered, faults[fault](postgres_url)) as entered:
            async with measured(config) as waits:
                ids = [await waits.timed(cut(optimizer)) for _ in range(3)]
                for result_id in ids:
                    assert "Person 399" in await waits.timed(rest(optimizer, result_id))
                async with asyncio.timeout(HANGS):
                    assert (await waits.timed(optimizer.find("say something back"))).tools
            assert optimizer.parts.kept_results.waiting == 3
            await asyncio.to_thread(entered.leave)
        await until(lambda: optimizer.parts.kept_results.waiting == 0, timeout=20)
        for result_id in (before, *ids):
            # The other gateway has it from the database alone.
            assert "Person 399" in await rest(other, result_id)
        await until(lambda: optimizer.recorder.waiting == 0, timeout=30)
        assert (optimizer.recorder.dropped, optimizer.parts.kept_results.waiting) == (0, 0)


class _Entered:
    """A fault that is entered and left in a thread, because the event loop belongs to the gateway."""

    def __init__(self, fault: AbstractContextManager[None]) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(fault)

    def leave(self) -> None:
        self._stack.close()

    def __enter__(self) -> _Entered:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


async def test_while_the_database_hangs_only_the_first_cut_result_waits_for_it(
    config: Path, postgres: Postgres, postgres_url: str
) -> None:
    async with gateway(config, postgres_url) as optimizer:
        before = await cut(optimizer)
        with postgres.stopped():
            await cut(optimizer)
            started = time.perf_counter()
            for _ in range(5):
                await cut(optimizer)
            later = time.perf_counter() - started
            with pytest.raises(InvalidRequest, match="the database does not answer"):
                await rest(optimizer, before)
            started = time.perf_counter()
            for _ in range(5):
                with pytest.raises(InvalidRequest, match="the database does not answer"):
                    await rest(optimizer, before)
            refused = time.perf_counter() - started
        # Five that each waited a second would take five.
        assert later < 4
        assert refused < 4
        await until(lambda: not optimizer.storage.breaker.is_open, timeout=20)
        assert "Person 399" in await rest(optimizer, before)


async def test_a_postgresql_that_is_restarted_or_has_no_connection_left_costs_nothing(config: Path) -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres(programs, {"max_connections": "12", "superuser_reserved_connections": "0"}) as postgres:
        url = postgres.new_database()
        async with gateway(config, url) as optimizer:
            await cut(optimizer)
            async with without_connections(url):
                ids = [await cut(optimizer) for _ in range(2)]
                for result_id in ids:
                    # In memory; or in the database already, if the gateway got a connection for a moment.
                    with contextlib.suppress(InvalidRequest):
                        assert "Person 399" in await rest(optimizer, result_id)
            await until(lambda: optimizer.parts.kept_results.waiting == 0, timeout=20)
            await asyncio.to_thread(postgres.restart)
            ids += [await cut(optimizer) for _ in range(2)]
            await until(lambda: optimizer.parts.kept_results.waiting == 0, timeout=20)
            assert all(["Person 399" in await rest(optimizer, result_id) for result_id in ids])
            await until(lambda: optimizer.recorder.waiting == 0, timeout=30)
            assert optimizer.recorder.dropped == 0


async def test_a_file_that_another_process_holds_delays_no_call_and_loses_no_rest(config: Path, tmp_path: Path) -> None:
    place = tmp_path / "catalog.db"
    async with gateway(config, place) as optimizer, gateway(config, place) as other:
        before = await cut(optimizer)
        with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            ids = [await cut(optimizer) for _ in range(3)]
            # What was written before can be read all the time.
            for result_id in (before, *ids):
                assert "Person 399" in await rest(optimizer, result_id)
            holder.execute("ROLLBACK")
        await until(lambda: optimizer.parts.kept_results.waiting == 0, timeout=20)
        for result_id in ids:
            assert "Person 399" in await rest(other, result_id)


async def test_a_full_file_loses_no_rest(config: Path, tmp_path: Path) -> None:
    place = tmp_path / "catalog.db"
    async with gateway(config, place) as optimizer:
        await asyncio.to_thread(
            _done_in_the_file,
            place,
            "CREATE TRIGGER full_disk BEFORE INSERT ON kept_result BEGIN "
            "SELECT RAISE(ABORT, 'database or disk is full'); END",
        )
        ids = [await cut(optimizer) for _ in range(3)]
        for result_id in ids:
            assert "Person 399" in await rest(optimizer, result_id)
        await asyncio.to_thread(_done_in_the_file, place, "DROP TRIGGER full_disk")
        await until(lambda: optimizer.parts.kept_results.waiting == 0, timeout=20)


def _done_in_the_file(place: Path, statement: str) -> None:
    """In a thread: the gateway may hold the file, and lets go of it in the event loop."""
    with contextlib.closing(sqlite3.connect(place, isolation_level=None, timeout=30)) as other:
        other.execute(statement)


async def test_a_blocked_server_stays_blocked_while_the_database_of_approvals_cannot_be_opened(
    write_servers: WriteServers, postgres: Postgres, postgres_url: str
) -> None:
    config = write_servers({"one": plain_server("one", "--tools", 10)})
    server, _, name = postgres_url.rpartition("/")
    away = f"{server.rpartition(':')[0]}:1/{name}"
    options: dict[str, Any] = {"trust_local": "block", "encoder": "none", "wait": 20}
    async with Optimizer.from_config(config, database=away, **options) as optimizer:
        with pytest.raises(RequestError, match="approv"):
            await optimizer.call("echo", {"value": "x"})
    async with Optimizer.from_config(config, database=postgres_url, **options) as optimizer:
        assert await optimizer.call("echo", {"value": "x"})
