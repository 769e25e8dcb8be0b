"""The table of the audit: entries come back as they were written, by who, what and when, and go by age alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.db.audit import AuditQuery, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.history import StoredUse
from mcp_optimizer.db.tables import audit
from mcp_optimizer.domain.audit import AuditEntry, bounded

NOW = 1_800_000_000.0
ENTRY = AuditEntry(
    at_ms=1_800_000_000_123,
    caller="corp:alice",
    tenant="acme",
    client="claude-ai",
    session="ab12",
    method="tools/call",
    server="github",
    tool="create_issue",
    risk="write",
    decision="ask",
    rule="rule 3 of the settings",
    approved_by="corp:alice",
    outcome="ok",
    arguments_bytes=21,
    arguments_hash="k:1",
    arguments='{"a":"ü"}',
    result_tokens=2**40,
    result_hash="k:2",
    milliseconds=1.5,
    definition_hash="d",
    trace_id="0" * 32,
)


@asynccontextmanager
async def opened(place: Path | str | None = None) -> AsyncIterator[StoredAudit]:
    database = await open_database(place)
    try:
        yield StoredAudit(database)
    finally:
        await database.close()


def act(number: int, **fields: Any) -> AuditEntry:
    return AuditEntry(int(NOW * 1_000) + number, method="tools/call", outcome=str(number))._replace(**fields)


def numbers(entries: list[AuditEntry]) -> list[int]:
    return [int(entry.outcome) for entry in entries]


def test_an_entry_has_the_fields_of_the_table_in_their_order() -> None:
    assert list(AuditEntry._fields) == [column.name for column in audit.columns if column.name != "id"]


async def test_an_entry_comes_back_as_it_was_written(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.write([ENTRY, ENTRY._replace(arguments=None)])
        assert await stored.read(AuditQuery()) == [ENTRY, ENTRY._replace(arguments=None)]


async def test_the_newest_entries_come_last_whoever_wrote_them_when(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.write([act(3), act(1)])
        await stored.write([act(2), act(4)])
        assert numbers(await stored.read(AuditQuery(limit=3))) == [2, 3, 4]


@pytest.mark.slow
async def test_more_entries_than_fit_a_page_are_all_found() -> None:
    async with opened() as stored:
        # Many at one moment, so that pages end in the middle of it.
        await stored.write([act(number // 1_500, outcome=str(number)) for number in range(5_000)])
        assert numbers(await stored.read(AuditQuery(limit=4_500))) == list(range(500, 5_000))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (AuditQuery(since=NOW + 0.002), [2, 3, 4]),
        (AuditQuery(until=NOW + 0.001), [0, 1]),
        (AuditQuery(caller="key:*"), [1, 2]),
        (AuditQuery(caller="KEY:*"), []),
        (AuditQuery(caller="key:[ab]"), [1, 2]),
        (AuditQuery(caller="key:[!a]"), [2]),
        (AuditQuery(caller="local", decision="deny"), [3]),
        (AuditQuery(tool="100%_?"), [4]),
        (AuditQuery(server="github"), [0, 1]),
        (AuditQuery(server="GitHub"), []),
        (AuditQuery(since=-1e300, until=1e300), [0, 1, 2, 3, 4]),
        (AuditQuery(tool="\0\ud800*"), []),
    ],
)
async def test_entries_are_found_by_who_what_and_when(
    place: Path | str, query: AuditQuery, expected: list[int]
) -> None:
    async with opened(place) as stored:
        await stored.write(
            [
                act(0, server="github", tool="create"),
                act(1, server="github", caller="key:a"),
                act(2, caller="key:b", tool="100x_y"),
                act(3, decision="deny"),
                act(4, tool="100%_y"),
            ]
        )
        assert numbers(await stored.read(query)) == expected


async def test_names_that_no_database_can_store_do_not_keep_the_others_from_being_stored(place: Path | str) -> None:
    hostile = bounded(act(1, tool="a\0b\ud800c\nd\x1b[2J" + "x" * 1_000_000, client="\udfff" * 5))
    async with opened(place) as stored:
        await stored.write([act(0), hostile._replace(arguments_bytes=2**53), act(2)])
        found = await stored.read(AuditQuery())
    assert numbers(found) == [0, 1, 2]
    assert found[1].tool.startswith("a\ufffdb?c\nd\x1b[2Jxxx")
    assert len(found[1].tool) <= 300


async def test_entries_go_by_age_alone(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.write([act(number) for number in range(10)])
        assert await stored.forget(NOW + 0.007) == 7
        assert numbers(await stored.read(AuditQuery())) == [7, 8, 9]


async def test_the_key_belongs_to_the_database_and_is_not_that_of_other_hashes(place: Path | str) -> None:
    async with opened(place) as stored:
        first = await stored.key()
    database = await open_database(place)
    salt, counts = await StoredUse(database).read()
    await database.close()
    async with opened(place) as again, opened() as other:
        assert await again.key() == first
        assert await other.key() != first
    assert salt not in first
    assert counts == {}


def test_everything_in_an_entry_is_bounded() -> None:
    huge = "x" * 1_000_000
    entry = bounded(ENTRY._replace(tool=huge, caller=huge, arguments=huge, result_tokens=10**30, milliseconds=1e400))
    assert (len(entry.tool), len(entry.caller), len(entry.arguments or "")) == (300, 300, 10_000)
    assert (entry.result_tokens, entry.milliseconds) == (2**53, 0.0)
    assert bounded(ENTRY) == ENTRY


async def test_writers_that_find_the_file_deleted_create_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "catalog.db"
    async with opened(path) as stored:
        await stored.write([act(0)])
        path.unlink()
        await asyncio.gather(*(stored.write([act(number)]) for number in range(1, 6)))
        assert sorted(numbers(await stored.read(AuditQuery()))) == [1, 2, 3, 4, 5]
    assert caplog.text.count("was deleted; creating a new one") == 1


async def test_callers_are_summed_up_within_limits(place: Path | str) -> None:
    entries = [act(number, caller=f"key:{number % 3}") for number in range(30)]
    declined = act(31, caller="key:0", outcome="declined")
    async with opened(place) as stored:
        await stored.write([*entries, act(30, caller="", decision="deny"), declined])
        found = await stored.active_callers(NOW, 1_000, 10)
        assert [(one.caller, one.acts, one.refused) for one in found] == [
            ("key:0", 11, 1),
            ("", 1, 1),
            ("key:2", 10, 0),
            ("key:1", 10, 0),
        ]
        assert found[0].last_at_ms == declined.at_ms
        assert [one.caller for one in await stored.active_callers(NOW, 1_000, 2)] == ["key:0", ""]
        assert sum(one.acts for one in await stored.active_callers(NOW, 5, 10)) == 5
        assert await stored.active_callers(NOW + 1, 1_000, 10) == []


@pytest.mark.slow
async def test_a_filter_that_fits_nothing_looks_at_a_limited_number_of_rows() -> None:
    async with opened() as stored:
        await stored.write([act(number, tool="b" if number else "a") for number in range(5_000)])
        assert len(await stored.read(AuditQuery(tool="[a]"))) == 1
        assert await stored.read(AuditQuery(tool="[a]", most_read=2_000)) == []
