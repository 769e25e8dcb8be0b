"""The trail: nobody waits for it, each place gets what it can take, and what is lost is said."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.audit.audit_file import AuditOptions
from mcp_optimizer.access.audit.command_acts import record
from mcp_optimizer.access.audit.trail import AuditTrail, AuditWriter, Refusals
from mcp_optimizer.db.audit import AuditQuery, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.errors import CatalogError
from tests.waiting import until


class Table:
    """A table in memory: it fails while `fails` is set, and waits while `is_open` is not."""

    name = "the table"

    def __init__(self, *, fails: bool = False, key: bytes = b"k") -> None:
        self.entries: list[AuditEntry] = []
        self.fails = fails
        self.tried = 0
        self.forgotten: list[float] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._key = key

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        self.tried += 1
        await self.is_open.wait()
        if self.fails:
            raise CatalogError("database is locked")
        self.entries += entries

    async def forget(self, before: float) -> int:
        self.forgotten.append(before)
        return 0

    async def key(self) -> bytes:
        if self.fails:
            raise CatalogError("database is locked")
        return self._key


def trail_of(table: Table | None, file: Path | None = None, **more: Any) -> AuditTrail:
    async def store() -> Table | None:
        return table

    return AuditTrail(AuditOptions(file=file), store if table is not None else None, **more)


def act(number: int, **fields: Any) -> AuditEntry:
    return AuditEntry(1_800_000_000_000 + number, method="tools/call")._replace(**fields)


def read(path: Path) -> list[dict[str, Any]]:
    """The complete lines: the last one may be half written."""
    written = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]


async def test_what_arrives_while_others_are_written_waits_for_more_and_nothing_of_it_is_lost_at_the_end() -> None:
    table = Table()
    writer = AuditWriter(table)
    writer.start()
    table.is_open.clear()
    writer.put(act(0))
    await until(lambda: table.tried == 1)
    writer.put(act(1))
    table.is_open.set()
    await until(lambda: writer.written == 1)
    assert (table.tried, writer.waiting) == (1, 1)
    for number in range(2, 5):
        writer.put(act(number))
    await until(lambda: writer.written == 5)
    assert table.tried == 2
    table.is_open.clear()
    writer.put(act(5))
    await until(lambda: table.tried == 3)
    writer.put(act(6))
    stopping = asyncio.create_task(writer.stop())
    await asyncio.sleep(0)
    table.is_open.set()
    await stopping
    assert [entry.at_ms - act(0).at_ms for entry in table.entries] == list(range(7))


async def test_entries_reach_the_table_and_the_file_in_their_order(tmp_path: Path) -> None:
    table, path = Table(), tmp_path / "audit.jsonl"
    trail = trail_of(table, path)
    trail.start()
    for number in range(1_200):
        trail.add(act(number, tool=str(number)))
    await trail.stop()
    assert (
        [entry.tool for entry in table.entries] == [line["tool"] for line in read(path)] == list(map(str, range(1_200)))
    )
    assert trail.dropped == 0
    assert table.forgotten


async def test_entries_are_written_while_the_gateway_runs(tmp_path: Path) -> None:
    table, path = Table(), tmp_path / "audit.jsonl"
    trail = trail_of(table, path)
    trail.start()
    trail.add(act(1))
    await until(lambda: len(table.entries) == len(read(path)) == 1)
    trail.add(act(2))
    await until(lambda: len(table.entries) == len(read(path)) == 2)
    await trail.stop()


async def test_entries_that_arrive_during_a_write_are_collected_for_the_next() -> None:
    times: list[float] = []

    class Busy(Table):
        """Something happens during each write."""

        async def write(self, entries: Sequence[AuditEntry]) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 3:
                writer.put(AuditEntry(2))
            await super().write(entries)

    table = Busy()
    writer = AuditWriter(table)
    writer.start()
    writer.put(AuditEntry(1))
    await until(lambda: len(times) == 3)
    await writer.stop()
    assert all(later - earlier > 0.2 for earlier, later in itertools.pairwise(times[:3]))
    assert [entry.at_ms for entry in table.entries[:3]] == [1, 2, 2]


async def test_hashes_are_keyed_with_the_key_of_the_database_and_alike_in_both_places(tmp_path: Path) -> None:
    written = []
    for number, key in enumerate((b"one", b"one", b"other")):
        table, path = Table(key=key), tmp_path / str(number)
        trail = trail_of(table, path)
        trail.start()
        trail.add(act(1, arguments_hash="ab" * 64, result_hash="ab" * 64))
        await trail.stop()
        assert table.entries[0].arguments_hash == read(path)[0]["arguments_hash"] == table.entries[0].result_hash
        written.append(table.entries[0].arguments_hash)
    assert written[0] == written[1] != written[2]
    assert "ab" * 64 not in "".join(written)
    assert written[0].partition(":")[0] != written[2].partition(":")[0]


async def test_a_database_that_cannot_be_used_costs_the_file_nothing(tmp_path: Path) -> None:
    table, path = Table(fails=True), tmp_path / "audit.jsonl"
    trail = trail_of(table, path)
    trail.start()
    trail.add(act(1, arguments_hash="ab" * 64))
    await until(lambda: len(read(path)) == 1)
    # With a key of the process, because that of the database is not known.
    assert read(path)[0]["arguments_hash"].count(":") == 1
    assert table.entries == []
    table.fails = False
    await trail.stop()
    assert len(table.entries) == 1


async def test_a_database_that_does_not_answer_delays_neither_callers_nor_the_file(tmp_path: Path) -> None:
    table, path = Table(), tmp_path / "audit.jsonl"
    table.is_open.clear()
    trail = trail_of(table, path)
    trail.start()
    for number in range(100):
        trail.add(act(number))
    await until(lambda: len(read(path)) == 100)
    assert table.entries == []
    table.is_open.set()
    await trail.stop()
    assert len(table.entries) == 100


async def test_a_full_disk_costs_the_table_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # A file where a folder should be: the system refuses to write, as a full disk does.
    (tmp_path / "file").touch()
    table = Table()
    trail = trail_of(table, tmp_path / "file" / "audit.jsonl")
    trail.start()
    trail.add(act(1))
    await trail.stop()
    assert len(table.entries) == 1
    assert trail.dropped == 1
    assert "Cannot write the audit to the file" in caplog.text
    assert "missing in the file" in caplog.text


async def test_what_is_lost_is_counted_logged_once_a_minute_and_said_in_what_is_written_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table(fails=True)
    writer = AuditWriter(table, capacity=10, first_pause=0.01)
    writer.start()
    for number in range(50):
        writer.put(act(number))
    await until(lambda: table.tried > 1)
    table.fails = False
    await until(lambda: writer.written == 10)
    writer.put(act(99))
    await writer.stop()
    assert writer.dropped == 40
    lost, *others = table.entries
    assert (lost.method, lost.outcome) == ("audit/lost", "40 not written here before this")
    assert [entry.at_ms % 100 for entry in others] == [*range(10), 99]
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 1


async def test_without_a_file_and_a_database_nothing_is_recorded() -> None:
    trail = trail_of(None)
    trail.start()
    assert not trail.is_on
    trail.add(act(1))
    await trail.stop()


async def test_what_was_added_before_a_start_that_never_came_is_written_at_the_end(tmp_path: Path) -> None:
    table, path = Table(), tmp_path / "audit.jsonl"
    trail = trail_of(table, path)
    assert not trail.is_on
    trail.add(act(1, method="login/ended"))
    await trail.stop()
    assert [entry.method for entry in table.entries] == ["login/ended"]
    assert len(read(path)) == 1


async def test_a_gateway_that_ends_without_entries_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = trail_of(Table(), path)
    trail.start()
    await trail.stop()
    assert list(tmp_path.iterdir()) == []


async def test_a_flood_of_refusals_is_two_entries(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = trail_of(None, path)
    trail.start()
    for _ in range(100_000):
        trail.refused(401, "no credentials")
    await trail.stop()
    assert [(line["method"], line["decision"], line["rule"], line["outcome"]) for line in read(path)] == [
        ("http/refused", "deny", "no credentials", "401"),
        ("http/refused", "deny", "no credentials", "401, 99999 times"),
    ]


def test_each_reason_has_at_most_one_entry_a_minute() -> None:
    now = [1_000.0]
    refusals = Refusals(lambda: now[0])
    told: list[AuditEntry] = []
    for second in range(180):
        now[0] = 1_000.0 + second
        told += refusals.refused(401, "expired")
        told += refusals.refused(403, "too little scope")
        told += refusals.due()
    assert [entry.outcome for entry in told if entry.rule == "expired"] == ["401", "401, 60 times", "401, 60 times"]
    assert len(told) == 6


def test_a_million_reasons_take_no_more_room_than_a_few() -> None:
    refusals = Refusals(lambda: 1_000.0)
    told = [entry for number in range(10_000) for entry in refusals.refused(401, f"reason {number}")]
    assert len(told) == 65
    assert told[-1].rule == "other reasons"
    assert [entry.outcome for entry in refusals.due(at_the_end=True)] == ["401, 9935 times"]


async def test_a_command_records_one_act_in_both_places(tmp_path: Path) -> None:
    place, path = tmp_path / "catalog.db", tmp_path / "audit.jsonl"
    await record(place, AuditOptions(file=path), act(1, method="key/create", tool="ci" * 1_000))
    database = await open_database(place)
    [stored] = await StoredAudit(database).read(AuditQuery())
    await database.close()
    assert (stored.method, len(stored.tool)) == ("key/create", 300)
    assert read(path)[0]["method"] == "key/create"


async def test_an_act_that_cannot_be_recorded_is_done_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    await record(tmp_path / "file" / "catalog.db", AuditOptions(file=tmp_path / "file" / "audit.jsonl"), act(1))
    assert "not in the audit table" in caplog.text
    assert "not in the audit file" in caplog.text
