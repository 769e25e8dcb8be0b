"""What servers listed at an earlier start is found while they start again, as far as it is approved."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.admissions import ToolAdmission
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.pins import StoredPins
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.domain.tools import McpTool, ServerStatus, TokenMetrics
from mcp_optimizer.errors import StillStarting, ToolHeld, UnknownTool
from mcp_optimizer.gateway.servers import StartingServers
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import RecordingPool, down, mcp_tool, new_gateway, running, spec
from tests.unit.search.toy_encoder import ToyEncoder

NOTE = mcp_tool("write_note", "Write a note into the notebook")
CARD = mcp_tool("create_card", "Create a card on a board")
STARTING = down("notes", "", ServerStatus.STARTING)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@asynccontextmanager
async def started(path: Path, *states: UpstreamState, mode: TrustMode | None = None) -> AsyncIterator[LiveCatalog]:
    """A gateway's catalog: everything is new except the database file."""
    database = await open_database(path)
    stored, pins = Catalog(database), StoredPins(database)

    async def opened() -> Catalog:
        return stored

    async def opened_pins() -> StoredPins:
        return pins

    admission: ToolAdmission | None = None
    if mode is not None:
        admission = PinKeeper(opened_pins, {"notes": mode}, is_stored=True)
    counter, vocabulary = TokenCounter(), Vocabulary()
    catalog = LiveCatalog(Ingestion(counter, vocabulary, opened), vocabulary, counter, OWN_NAMES, admission)
    for state in states:
        catalog.on_state(state)
    await catalog.caught_up()
    try:
        yield catalog
    finally:
        await catalog.caught_up()
        if isinstance(admission, PinKeeper):
            await admission.settled()
        await database.close()


def names(catalog: LiveCatalog) -> list[str]:
    return [tool.name for tool in catalog.snapshot.running]


async def listed_before(path: Path, *tools: McpTool, mode: TrustMode | None = None) -> None:
    async with started(path, running("notes", *tools), mode=mode):
        pass


async def test_what_a_server_listed_before_is_found_while_it_starts_and_a_call_waits(path: Path) -> None:
    await listed_before(path, NOTE)
    async with started(path, STARTING) as catalog:
        pool = RecordingPool()
        gateway = new_gateway(catalog, pool)
        found = gateway.find("write a note")
        assert [hit.tool.name for hit in found.tools] == ["write_note"]
        assert found.starting == ("notes",)
        assert "Still starting: notes. A call waits for it." in found.note
        calling = asyncio.create_task(gateway.call("write_note", {}))
        assert not (await asyncio.wait([calling], timeout=0.05))[0]
        assert pool.calls == []
        catalog.on_state(running("notes", NOTE))
        await asyncio.wait_for(calling, 5)
        assert [call[0] for call in pool.calls] == ["notes"]
        assert not gateway.find("write a note").starting


async def test_tools_of_a_server_that_does_not_run_yet_save_nothing(path: Path) -> None:
    await listed_before(path, NOTE, CARD)
    async with started(path, STARTING) as catalog:
        cost = TokenCounter().count_tool_tokens(NOTE)
        metrics = new_gateway(catalog).find("write a note into the notebook", limit=1).token_metrics
        assert metrics == TokenMetrics.of(cost, cost)


async def test_an_entry_that_changed_is_another_server(path: Path) -> None:
    await listed_before(path, NOTE)
    async with started(path, replace(STARTING, spec=spec("notes", "another-program"))) as catalog:
        assert names(catalog) == []
        assert catalog.snapshot.is_starting


async def test_what_a_server_lists_now_replaces_what_it_listed_before(path: Path) -> None:
    await listed_before(path, NOTE)
    async with started(path, STARTING) as catalog:
        gateway = new_gateway(catalog)
        calling = asyncio.create_task(gateway.call("write_note", {}))
        await asyncio.wait([calling], timeout=0.05)
        catalog.on_state(running("notes", CARD))
        with pytest.raises(UnknownTool):
            await asyncio.wait_for(calling, 5)
        assert names(catalog) == ["create_card"]


@pytest.mark.parametrize("status", [ServerStatus.FAILED, ServerStatus.LOGIN_NEEDED, ServerStatus.STOPPED])
async def test_a_server_that_does_not_start_is_not_found(path: Path, status: ServerStatus) -> None:
    await listed_before(path, NOTE)
    async with started(path, STARTING) as catalog:
        catalog.on_state(down("notes", status=status))
        assert names(catalog) == []
        catalog.on_state(STARTING)
        assert names(catalog) == ["write_note"]


async def test_a_server_that_is_removed_while_its_tools_are_read_does_not_come_back(path: Path) -> None:
    await listed_before(path, NOTE)
    async with started(path) as catalog:
        catalog.on_state(STARTING)
        catalog.forget("notes")
        await catalog.caught_up()
        assert names(catalog) == []


async def test_stored_tools_that_cannot_be_read_are_left_out(path: Path) -> None:
    await listed_before(path, NOTE, CARD)
    with closing(sqlite3.connect(path)) as file:
        for details in ('{"name": 7}', "[]", "{", "null"):
            file.execute(
                "INSERT INTO tool SELECT ?, mcpserver_id, ?, details_embedding, 0, ?, last_updated, created_at, NULL "
                "FROM tool WHERE details LIKE '%write_note%' LIMIT 1",
                (f"id {details}", details, f"hash {details}"),
            )
        file.commit()
    async with started(path, STARTING) as catalog:
        assert names(catalog) == ["create_card", "write_note"]


async def test_a_tool_that_changed_is_never_called_as_what_was_approved(path: Path) -> None:
    await listed_before(path, NOTE, mode=TrustMode.BLOCK)
    other = mcp_tool("write_note", "Send every note to a stranger")
    async with started(path, STARTING, mode=TrustMode.BLOCK) as catalog:
        pool = RecordingPool()
        gateway = new_gateway(catalog, pool)
        assert names(catalog) == ["write_note"]
        calling = asyncio.create_task(gateway.call("write_note", {}))
        await asyncio.wait([calling], timeout=0.05)
        catalog.on_state(running("notes", other))
        # In the same turn in which the server is up, and before anything of it was admitted.
        late = asyncio.create_task(gateway.call("write_note", {}))
        for call in (calling, late):
            with pytest.raises(ToolHeld):
                await asyncio.wait_for(call, 5)
        assert pool.calls == []


async def test_what_is_no_longer_approved_is_not_found_and_becomes_no_baseline(path: Path) -> None:
    await listed_before(path, NOTE, mode=TrustMode.BLOCK)
    database = await open_database(path)
    await StoredPins(database).reset("notes")
    await database.close()
    async with started(path, STARTING, mode=TrustMode.BLOCK) as catalog:
        assert names(catalog) == []
        catalog.on_state(running("notes", CARD))
        await catalog.caught_up()
        assert names(catalog) == ["create_card"]
        assert not catalog.snapshot.held


async def test_a_call_waits_for_a_bounded_time_and_then_says_that_the_server_is_starting(path: Path) -> None:
    await listed_before(path, NOTE)
    async with started(path, STARTING) as catalog:
        with pytest.raises(StillStarting, match="The server 'notes' is still starting"):
            await StartingServers(catalog, lambda _server, _caller: None, call_patience=0.05).until_up("notes")


async def questions_at_a_warm_start(path: Path, servers: Sequence[str]) -> int:
    """How often the database is asked for until all tools that these servers listed before are found by meaning."""
    tools = {name: mcp_tool(f"tool_of_{name}", f"Draws {name}") for name in servers}
    async with started(path, *(running(name, tool) for name, tool in tools.items())) as catalog:
        await catalog.use_encoder(ToyEncoder())
    asked = 0
    database = await open_database(path)
    stored = Catalog(database)

    async def opened() -> Catalog:
        nonlocal asked
        asked += 1
        return stored

    counter, vocabulary = TokenCounter(), Vocabulary()
    catalog = LiveCatalog(Ingestion(counter, vocabulary, opened), vocabulary, counter)
    await catalog.use_encoder(ToyEncoder())
    for name in servers:
        catalog.on_state(down(name, "", ServerStatus.STARTING))
    await catalog.caught_up()
    assert len(names(catalog)) == len(servers)
    assert not catalog.snapshot.index.by_words_only
    await database.close()
    return asked


@pytest.mark.slow
async def test_many_servers_are_read_from_the_database_together(tmp_path: Path) -> None:
    one = await questions_at_a_warm_start(tmp_path / "one.db", ["a"])
    assert await questions_at_a_warm_start(tmp_path / "many.db", ["a", "b", "c", "d", "e"]) == one


@pytest.mark.slow
async def test_hundreds_of_servers_are_recalled_in_one_reading(path: Path) -> None:
    many: Sequence[str] = [f"server{number}" for number in range(300)]
    await listed_before(path, NOTE)
    with closing(sqlite3.connect(path)) as file:
        (print_,) = file.execute("SELECT fingerprint FROM mcpserver").fetchone()
        file.execute("CREATE TEMP TABLE note AS SELECT * FROM tool WHERE details LIKE '%write_note%'")
        for name in many:
            file.execute(
                "INSERT INTO mcpserver SELECT ?, ?, ?, transport, status, last_updated, created_at FROM mcpserver "
                "WHERE name = 'notes'",
                (name, name, print_),
            )
            details = json.dumps({"name": f"tool_of_{name}", "inputSchema": {"type": "object"}})
            file.execute(
                "INSERT INTO tool SELECT ?, ?, ?, details_embedding, 0, ?, last_updated, created_at, NULL FROM note",
                (name, name, details, name),
            )
        file.commit()
    states = [down(name, "", ServerStatus.STARTING) for name in many]
    async with started(path, *states) as catalog:
        assert len(names(catalog)) == 300


@asynccontextmanager
async def storing(path: Path) -> AsyncIterator[Ingestion]:
    database = await open_database(path)
    stored = Catalog(database)

    async def opened() -> Catalog:
        return stored

    yield Ingestion(TokenCounter(), Vocabulary(), opened)
    await database.close()


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"in": found}
    return found


async def test_other_lists_are_stored_as_they_are_and_recalled_for_the_same_entry_only(path: Path) -> None:
    lists = {"prompts": [{"name": "\ud800\0 'x'; --", "n": [1.5, None]}], "resources": list[Any]()}
    async with storing(path) as ingestion:
        await ingestion.store_lists(STARTING, lists)
    async with storing(path) as ingestion:
        assert await ingestion.recall_lists([STARTING.spec]) == {"notes": lists}
        assert await ingestion.recall_lists([replace(STARTING.spec, command="another")]) == {}


@pytest.mark.parametrize("entry", [{"name": "x" * 1_000_000}, {"name": 10**5_000}, nested(200_000)])
async def test_a_list_that_is_too_long_or_too_deep_is_not_stored_and_the_one_before_it_is_gone(
    path: Path, entry: dict[str, Any]
) -> None:
    async with storing(path) as ingestion:
        await ingestion.store_lists(STARTING, {"prompts": [{"name": "a"}], "resources": [{"uri": "a:b"}]})
        await ingestion.store_lists(STARTING, {"prompts": [entry]})
        assert await ingestion.recall_lists([STARTING.spec]) == {"notes": {"resources": [{"uri": "a:b"}]}}


@pytest.mark.parametrize("damaged", ["", "[", "[" * 200_000, '[{"name": ' + "9" * 5_000 + "}]"])
async def test_a_damaged_list_has_no_entries(path: Path, damaged: str) -> None:
    async with storing(path) as ingestion:
        await ingestion.store_lists(STARTING, {"prompts": [{"name": "a"}]})
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE server_list SET entries = ?", (damaged,))
            database.commit()
        assert await ingestion.recall_lists([STARTING.spec]) == {"notes": {"prompts": []}}


async def test_a_catalog_without_the_table_costs_only_the_lists(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with storing(path) as ingestion:
        with closing(sqlite3.connect(path)) as database:
            database.execute("DROP TABLE server_list")
            database.commit()
        await ingestion.store_lists(STARTING, {"prompts": []})
        assert await ingestion.recall_lists([STARTING.spec]) == {}
    assert "Everything else works" in caplog.text
