"""Lists of registered tools are within budget, presented as the client needs, and ready when requested."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.db.catalog import StoredForms
from mcp_optimizer.db.database import Database, open_database
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.profiles.lists import Presentation, ToolLists
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.profiles.tiers import DEFAULT_BUDGETS, ProfileName, Tier
from mcp_optimizer.profiles.written_descriptions import WrittenDescriptions
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import down, live_catalog, mcp_tool, new_catalog, running
from tests.waiting import until

COUNTER = TokenCounter()
KIND = {"kind": {"type": "string", "enum": ["small", "large"]}}
CARDS = running(
    "kanban",
    *[mcp_tool(f"{verb}_card", f"{verb.title()} a card on a board. It says more.", KIND) for verb in ("list", "get")],
    mcp_tool("create_card", "Create a card.", KIND, title="Create", annotations={"readOnlyHint": False}),
    mcp_tool("burn_card", "Burn a card of a board that is no longer wanted, with all that is on it.", KIND),
)
PLAIN = Presentation()


def registration(
    catalog: LiveCatalog, forms: ToolForms | None = None, minimal: int = 9_000, standard: int = 20_000
) -> ToolLists:
    budgets = {**DEFAULT_BUDGETS, ProfileName.MINIMAL: minimal, ProfileName.STANDARD: standard}
    return ToolLists(catalog, forms or ToolForms(COUNTER), COUNTER, budgets=budgets)


def message_tokens(definitions: tuple[dict[str, object], ...]) -> int:
    tools = [*OWN_TOOLS, *definitions]
    return COUNTER.count_tokens(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")))


async def test_what_is_counted_is_at_least_what_is_sent() -> None:
    made = registration(await live_catalog(CARDS))
    for profile in ProfileName:
        listed = made.listed(profile)
        assert message_tokens(listed.definitions) <= made.total_tokens(profile)
        assert [tool["name"] for tool in listed.definitions] == sorted(listed.profile.tools)


async def test_titles_and_annotations_are_kept_where_people_see_them_and_count() -> None:
    made = registration(await live_catalog(CARDS))
    shown = made.listed(ProfileName.FULL, Presentation(shows_titles=True))
    [create] = [tool for tool in shown.definitions if tool["name"] == "create_card"]
    assert (create["title"], create["annotations"]) == ("Create", {"readOnlyHint": False})
    plain = made.listed(ProfileName.FULL)
    assert all("annotations" not in tool for tool in plain.definitions)
    assert message_tokens(plain.definitions) < message_tokens(shown.definitions)
    titled = made.profiles(Presentation(shows_titles=True)).profile(ProfileName.STANDARD)
    assert (titled.tokens or 0) >= (made.profiles().profile(ProfileName.STANDARD).tokens or 0)


async def test_a_profile_with_room_for_everything_is_compressed_ahead_of_its_list() -> None:
    catalog, forms = await live_catalog(CARDS), ToolForms(COUNTER)
    made = registration(catalog, forms)
    made.prepare(ProfileName.MINIMAL, PLAIN)
    assert len(forms.unknown(catalog.snapshot.running)) == 4
    made.prepare(ProfileName.FULL, PLAIN)
    assert forms.unknown(catalog.snapshot.running) == []


async def test_a_client_that_reads_little_is_given_types_beside_enums() -> None:
    made = registration(await live_catalog(CARDS))
    for presentation, has_type in ((Presentation(Dialect.INLINED), True), (PLAIN, False)):
        for tool in made.listed(ProfileName.FULL, presentation).definitions:
            assert ("type" in tool["inputSchema"]["properties"]["kind"]) is has_type


async def test_a_tool_of_the_next_tier_is_registered_once_after_its_first_use() -> None:
    light = [mcp_tool(f"do_thing_{number}", "Does one thing.", KIND) for number in range(60)]
    made = registration(await live_catalog(running("many", *light)), minimal=2_000)
    tiers = made.profiles().tier_of
    later = next(name for name, tier in tiers.items() if tier is Tier.COMMON)
    before = made.listed(ProfileName.MINIMAL)
    assert made.promote(later, ProfileName.MINIMAL)
    assert not made.promote(later, ProfileName.MINIMAL)
    assert not made.promote("unknown", ProfileName.MINIMAL)
    assert not made.promote(before.profile.tools[0], ProfileName.MINIMAL)
    after = made.listed(ProfileName.MINIMAL)
    assert after.definitions[:-1] == before.definitions
    assert after.definitions[-1]["name"] == later
    assert message_tokens(after.definitions) <= 2_000


async def test_descriptions_at_each_level_and_those_that_five_words_do_not_tell_apart() -> None:
    twins = [mcp_tool(f"tool_{number}", "Does the very same thing.") for number in range(2)]
    made = registration(await live_catalog(running("one", *twins), CARDS))
    assert made.unclear() == ["tool_0", "tool_1"]
    assert all(len(made.described(name, Level.WORDS).split()) <= 5 for name in made.profiles().tier_of)
    assert made.tokens("burn_card", Level.WORDS) < made.tokens("burn_card", Level.FULL)


async def test_many_who_ask_at_once_get_the_same_list_made_once() -> None:
    made = registration(await live_catalog(CARDS))
    found = await asyncio.gather(*[asyncio.to_thread(made.listed, ProfileName.FULL) for _ in range(8)])
    assert len({id(listed) for listed in found}) == 1


@asynccontextmanager
async def registrar_over(
    catalog: LiveCatalog,
    database: Database | None = None,
    *profiles: ProfileName,
    on_change: Callable[[], None] = lambda: None,
) -> AsyncIterator[tuple[ListRefresher, ToolForms]]:
    forms = ToolForms(COUNTER)

    async def opened() -> StoredForms | None:
        return StoredForms(database) if database is not None else None

    lists, written = registration(catalog, forms), WrittenDescriptions(None, opened)
    refresher = ListRefresher(catalog, lists, forms, opened, written, on_change=on_change)
    refresher.start(set(profiles))
    try:
        yield refresher, forms
    finally:
        await refresher.stop()


async def test_lists_are_the_same_to_the_byte_after_a_restart_and_nothing_is_compressed_twice() -> None:
    database = await open_database(None)
    lists = []
    for _ in range(2):
        catalog = await live_catalog(CARDS)
        async with registrar_over(catalog, database) as (refresher, forms):
            lists.append((await refresher.listed(ProfileName.FULL, PLAIN)).definitions)
        assert forms.unknown(catalog.snapshot.running) == []
    assert json.dumps(lists[0]) == json.dumps(lists[1])
    async with registrar_over(await live_catalog(CARDS), database) as (refresher, forms):
        await refresher.listed(ProfileName.FULL, PLAIN)
        assert forms.take_new() == []
    await database.close()


async def test_a_list_waits_for_servers_that_are_still_starting_but_not_for_failed_ones() -> None:
    catalog = new_catalog()
    catalog.on_state(down("slow", status=ServerStatus.STARTING))
    catalog.on_state(down("bad"))
    async with registrar_over(catalog) as (refresher, _):
        asked = asyncio.create_task(refresher.listed(ProfileName.FULL, PLAIN))
        await asyncio.sleep(0)
        assert not asked.done()
        catalog.on_state(running("slow", mcp_tool("late", "Comes late")))
        assert [tool["name"] for tool in (await asked).definitions] == ["late"]


async def test_whoever_has_a_list_is_told_when_it_is_another() -> None:
    catalog = await live_catalog(CARDS)
    told = asyncio.Event()
    async with registrar_over(catalog, None, ProfileName.FULL, on_change=told.set) as (refresher, _):
        await refresher.listed(ProfileName.FULL, PLAIN)
        catalog.on_state(running("new", mcp_tool("another", "Another tool")))
        await asyncio.wait_for(told.wait(), 5)
        assert "another" in {tool["name"] for tool in (await refresher.listed(ProfileName.FULL, PLAIN)).definitions}


async def test_without_its_database_everything_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise CatalogError("disk I/O error")

    monkeypatch.setattr(StoredForms, "read", fails)
    monkeypatch.setattr(StoredForms, "write", fails)
    database = await open_database(None)
    async with registrar_over(await live_catalog(CARDS), database) as (refresher, _):
        assert len((await refresher.listed(ProfileName.FULL, PLAIN)).definitions) == 4
    assert "Compressing definitions again" in caplog.text
    assert "Cannot store" in caplog.text
    await database.close()


async def test_the_event_loop_goes_on_while_a_list_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = await live_catalog(CARDS)
    has_begun, may_go_on = threading.Event(), threading.Event()
    inside = ToolLists.listed

    def slow(self: ToolLists, profile: ProfileName, presentation: Presentation | None = None) -> object:
        has_begun.set()
        may_go_on.wait(10)
        return inside(self, profile, presentation)

    monkeypatch.setattr(ToolLists, "listed", slow)
    async with registrar_over(catalog) as (refresher, _):
        asked = asyncio.create_task(refresher.listed(ProfileName.FULL, PLAIN))
        await until(has_begun.is_set, "a list is being made")
        assert not asked.done()
        may_go_on.set()
        await asked


@pytest.mark.requirement("B1", "TS-5")
async def test_a_tools_schema_says_where_each_phase_left_it() -> None:
    made = registration(await live_catalog(CARDS), minimal=0)
    schema = made.tool_schema("create_card", ProfileName.MINIMAL)
    states = (schema.schema_state.value, schema.load_state.value, schema.description_state.value)
    assert states == ("Compressed", "Lazy", "Concise")
    assert schema.shared_params == ("kind",)
    assert schema.profile is ProfileName.FULL
    assert schema.token_cost == made.tokens("create_card", Level.FULL)
    assert made.tool_schema("create_card", ProfileName.FULL).load_state.value == "Eager"
