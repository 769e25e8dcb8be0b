"""Ingestion counts each tool once, and neither the tokenizer nor the database can stop it."""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import Choking, mcp_tool, no_database, spec

TOOLS = (mcp_tool("b", "Second"), mcp_tool("a", "First", {"x": {"type": "string"}}), mcp_tool("c"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "catalog.db"


@asynccontextmanager
async def start(path: Path, counter: TokenCounter | None = None) -> AsyncIterator[tuple[Ingestion, Catalog]]:
    """Start as a gateway does: everything is new except the database file."""
    database = await open_database(path)
    catalog = Catalog(database)

    async def opened() -> Catalog:
        return catalog

    try:
        yield Ingestion(counter or TokenCounter(), Vocabulary(), opened), catalog
    finally:
        await database.close()


async def take_in(ingestion: Ingestion, tools: Sequence[McpTool] = TOOLS, server: str = "s") -> list[ToolRecord]:
    records = await ingestion.take_in(server, [Definition.of(tool) for tool in tools])
    await ingestion.store(spec(server), records)
    return records


def counts(records: Sequence[ToolRecord]) -> dict[str, int]:
    return {record.name: record.token_count for record in records}


@pytest.mark.requirement("A2", "FR-001", "FR-002", "DM-lifecycle-1")
async def test_each_tool_becomes_a_record_with_its_count_in_the_order_of_names(path: Path) -> None:
    async with start(path) as (ingestion, catalog):
        records = await take_in(ingestion)
        assert [(record.server, record.name) for record in records] == [("s", "a"), ("s", "b"), ("s", "c")]
        assert counts(records) == {tool.name: TokenCounter().count_tool_tokens(tool) for tool in TOOLS}
        (server,) = await catalog.servers()
        stored = await catalog.tools(server.id)
        assert {tool.details.name: tool.token_count for tool in stored} == counts(records)
        assert {uuid.UUID(tool.id).version for tool in stored} == {4}
        assert {tool.mcpserver_id for tool in stored} == {server.id}
        assert ingestion.counted == 3


@pytest.mark.requirement("A4", "R-4")
async def test_a_start_where_nothing_changed_counts_nothing(path: Path) -> None:
    async with start(path) as (ingestion, _):
        first = await take_in(ingestion)

    class Refusing(TokenCounter):
        def count_tokens(self, text: str) -> int:
            raise AssertionError("counted again")

        def count_many(self, texts: Sequence[str]) -> list[int]:
            raise AssertionError("counted again")

    async with start(path, Refusing()) as (ingestion, _):
        assert counts(await take_in(ingestion)) == counts(first)
        assert ingestion.counted == 0


async def test_only_what_is_new_or_changed_is_counted(path: Path) -> None:
    async with start(path) as (ingestion, _):
        await take_in(ingestion)
    changed = (*TOOLS[:2], mcp_tool("c", "Now described"), mcp_tool("d"))
    async with start(path) as (ingestion, _):
        assert list(counts(await take_in(ingestion, changed))) == ["a", "b", "c", "d"]
        assert ingestion.counted == 2


@pytest.mark.requirement("A4")
async def test_a_definition_that_two_servers_share_is_counted_once(path: Path) -> None:
    async with start(path) as (ingestion, _):
        await take_in(ingestion, server="one")
        await take_in(ingestion, server="two")
        assert ingestion.counted == 3


async def test_another_encoding_counts_anew_and_the_first_is_not_forgotten(path: Path) -> None:
    text = mcp_tool("t", "Конфигурация серверов и инструментов")
    async with start(path) as (ingestion, _):
        first = await take_in(ingestion, (text,))
    async with start(path, TokenCounter("o200k_base")) as (ingestion, catalog):
        second = await take_in(ingestion, (text,))
        assert ingestion.counted == 1
        assert counts(second) == {"t": TokenCounter("o200k_base").count_tool_tokens(text)} != counts(first)
        (server,) = await catalog.servers()
        assert [tool.token_count for tool in await catalog.tools(server.id)] == [counts(second)["t"]]
    async with start(path) as (ingestion, _):
        assert counts(await take_in(ingestion, (text,))) == counts(first)
        assert ingestion.counted == 0


@pytest.mark.requirement("A4")
async def test_a_tool_that_cannot_be_counted_counts_as_0_and_the_others_are_counted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned = mcp_tool("bad", "poison")
    async with start(path, Choking()) as (ingestion, catalog):
        found = counts(await take_in(ingestion, (*TOOLS, poisoned)))
        assert found == {**{tool.name: TokenCounter().count_tool_tokens(tool) for tool in TOOLS}, "bad": 0}
        (server,) = await catalog.servers()
        assert {tool.details.name: tool.token_count for tool in await catalog.tools(server.id)} == found
    assert "Cannot count a definition" in caplog.text
    assert "the tokenizer choked" in caplog.text
    # The failed count is not stored, so the next start tries again and succeeds.
    async with start(path) as (ingestion, catalog):
        found = counts(await take_in(ingestion, (*TOOLS, poisoned)))
        assert (found["bad"], ingestion.counted) == (TokenCounter().count_tool_tokens(poisoned), 1)
        (server,) = await catalog.servers()
        assert {tool.details.name: tool.token_count for tool in await catalog.tools(server.id)} == found


@pytest.mark.slow
async def test_a_tool_that_makes_the_real_tokenizer_panic_costs_the_others_nothing() -> None:
    hostile = mcp_tool("hostile", " " * 1_000_000)
    ingestion = Ingestion(TokenCounter("o200k_base"), Vocabulary(), no_database)
    found = counts(await take_in(ingestion, (*TOOLS, hostile)))
    assert set(found) == {"a", "b", "c", "hostile"}
    assert min(found["a"], found["b"], found["c"]) > 10


async def test_the_list_that_a_client_is_sent_is_counted_once_and_not_at_the_next_start(path: Path) -> None:
    sent = [{"name": "a", "description": "First\ud800"}, {"name": "b", "description": "Second"}]
    async with start(path) as (ingestion, _):
        tokens = await ingestion.list_tokens(sent)
        assert tokens == sum(TokenCounter().count_or_zero(compact(tool)) for tool in sent) > 0
    counter = TokenCounter()
    async with start(path, counter) as (ingestion, _):
        assert await ingestion.list_tokens(sent) == tokens
        assert counter.loaded is None
        # Another list, and the same one for another tokenizer, are others.
        assert await ingestion.list_tokens(sent[:1]) < tokens
    other = TokenCounter("o200k_base")
    async with start(path, other) as (ingestion, _):
        await ingestion.list_tokens(sent)
        assert other.loaded is not None


async def test_without_a_database_a_list_is_counted_each_time() -> None:
    ingestion = Ingestion(TokenCounter(), Vocabulary(), no_database)
    assert await ingestion.list_tokens([{"name": "a"}]) > 0


async def test_without_a_database_everything_is_counted() -> None:
    ingestion = Ingestion(TokenCounter(), Vocabulary(), no_database)
    assert min(counts(await take_in(ingestion)).values()) > 10
    assert ingestion.counted == 3


@pytest.mark.requirement("A4")
async def test_a_database_that_fails_is_logged_and_does_not_stop_ingestion(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(path) as (ingestion, _):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE definition_tokens")
            connection.execute("DROP TABLE tool")
            connection.commit()
        with caplog.at_level(logging.WARNING):
            assert min(counts(await take_in(ingestion)).values()) > 10
    assert "Cannot read the catalog" in caplog.text
    assert "Cannot store server s" in caplog.text


async def test_a_database_whose_folder_is_gone_does_not_stop_ingestion(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(path) as (ingestion, _):
        await take_in(ingestion, TOOLS[:1])
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
        path.parent.write_text("now a file")
        assert list(counts(await take_in(ingestion))) == ["a", "b", "c"]
    assert "Cannot store server s" in caplog.text


async def test_a_database_deleted_while_running_is_written_anew(path: Path) -> None:
    async with start(path) as (ingestion, catalog):
        await take_in(ingestion, TOOLS[:1])
        path.unlink()
        await take_in(ingestion)
        (server,) = await catalog.servers()
        assert len(await catalog.tools(server.id)) == 3
    async with start(path) as (ingestion, _):
        await take_in(ingestion)
        assert ingestion.counted == 0
