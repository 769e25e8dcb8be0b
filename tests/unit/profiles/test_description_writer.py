"""Descriptions written by an endpoint: requested in the background, checked like our own, stored, never required."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.compression.short_descriptions import Level, ShortDescription, better_written
from mcp_optimizer.db.catalog import StoredForms
from mcp_optimizer.db.database import Database, open_database
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.profiles.lists import Presentation, ToolLists
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.profiles.tiers import DEFAULT_BUDGETS, ProfileName
from mcp_optimizer.profiles.written_descriptions import DescriptionWriter, WrittenDescriptions
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import live_catalog, mcp_tool, running
from tests.unit.endpoints import serving
from tests.waiting import until

ABOUT = "Handle the {0} of a workspace, with everything that belongs to it. " + "More is said about it. " * 20
NOUNS = [f"{first}{second}" for first in ("card", "lane", "board", "user") for second in ("s", "list", "link", "log")]
TOOLS = running("kanban", *[mcp_tool(f"get_{noun}", ABOUT.format(noun)) for noun in NOUNS])
PLAIN = Presentation()


def _written(tool: dict[str, str]) -> str:
    return f"Show {tool['name']} now"


@dataclass
class Endpoint:
    """A test's own `/chat/completions` server: the requests that it received, and how it answers."""

    address: str = ""
    status: int = 200
    write: Callable[[list[dict[str, str]]], Any] = lambda tools: json.dumps([_written(tool) for tool in tools])
    asked: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Endpoint()

    def answer(path: str, body: Any, key: str | None) -> tuple[int, Any]:
        made.asked.append((path, body, key))
        content = made.write(json.loads(body["messages"][-1]["content"]))
        return made.status, {"choices": [{"message": {"content": content}}]}

    with serving(answer) as made.address:
        yield made


def test_an_endpoint_is_asked_for_all_tools_at_once(endpoint: Endpoint) -> None:
    writer = DescriptionWriter(f"{endpoint.address}#writer", "secret")
    assert writer.write([mcp_tool("a", "x" * 5_000), mcp_tool("b", "\ud800")]) == ["Show a now", "Show b now"]
    [(path, body, key)] = endpoint.asked
    assert (path, body["model"], key) == ("/v1/chat/completions", "writer", "Bearer secret")
    assert len(body["messages"][-1]["content"]) < 1_000
    assert "secret" not in writer.name
    writer.close()


def test_words_around_the_answer_do_no_harm(endpoint: Endpoint) -> None:
    endpoint.write = lambda _: '```json\n["Show  the\\ncard"]\n``` I hope this helps.'
    writer = DescriptionWriter(f"{endpoint.address}#m")
    assert writer.write([mcp_tool("a")]) == ["Show the card"]
    assert endpoint.asked[0][2] is None
    writer.close()


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("answer", ["", "no", "{}", "[1]", '["a", "b"]', "[", None, 5, '{"a": ["x"]} ]'])
def test_an_answer_that_is_none_is_an_error(endpoint: Endpoint, answer: Any) -> None:
    endpoint.write = lambda _: answer
    writer = DescriptionWriter(f"{endpoint.address}#m")
    with pytest.raises(ConnectionError, match="wrote no descriptions"):
        writer.write([mcp_tool("a")])
    writer.close()


@pytest.mark.parametrize("address", ["", "https://host/v1", "https://host/v1#", "host#model"])
def test_an_address_without_a_model_is_a_mistake_in_the_settings(address: str) -> None:
    with pytest.raises(ConfigurationError, match="https://host/v1#model-name"):
        DescriptionWriter(address)


OURS = [ShortDescription("Handle cards", True), ShortDescription("Handle lanes", False)]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "   ",
        "one two three four five six",
        "the of",
        "Handle lanes",
        "lanes handle",
        "Delete\x1b[31m all",
        "x" * 90,
    ],
)
def test_what_is_too_long_or_says_nothing_or_says_what_another_tool_says_is_not_taken(written: str) -> None:
    assert better_written(OURS, [written, None]) == OURS


def test_what_is_short_and_tells_the_tool_apart_is_taken() -> None:
    assert better_written(OURS, ["Move cards", "Rename a lane"]) == [
        ShortDescription("Move cards", True),
        ShortDescription("Rename a lane", True),
    ]
    # Two tools must not get the same description, even a written one.
    assert better_written(OURS, ["Change things", "Change things"]) == [
        ShortDescription("Change things", True),
        OURS[1],
    ]
    # A written description may repeat our own.
    assert better_written(OURS, ["Handle cards", None])[0] == OURS[0]


def refresher_with(
    catalog: LiveCatalog, endpoint: Endpoint, database: Database | None, on_change: Callable[[], None] = lambda: None
) -> ListRefresher:
    counter = TokenCounter()
    forms = ToolForms(counter)

    async def opened() -> StoredForms | None:
        return StoredForms(database) if database is not None else None

    written = WrittenDescriptions(DescriptionWriter(f"{endpoint.address}#m"), opened)
    own_tokens = sum(counter.count_many([json.dumps(tool) for tool in OWN_TOOLS]))
    budgets = {**DEFAULT_BUDGETS, ProfileName.MINIMAL: own_tokens + 300}
    pinned = [f"get_{noun}" for noun in NOUNS]
    made = ToolLists(catalog, forms, counter, pinned, budgets, written=written.texts)
    return ListRefresher(catalog, made, forms, opened, written, on_change=on_change)


async def descriptions(refresher: ListRefresher) -> list[str]:
    listed = await refresher.listed(ProfileName.MINIMAL, PLAIN)
    assert listed.profile.level is Level.WORDS
    return [tool["description"] for tool in listed.definitions]


async def test_descriptions_come_after_the_list_is_asked_for_and_stay_for_the_next_start(
    endpoint: Endpoint, place: Path | str
) -> None:
    database = await open_database(place)
    told = asyncio.Event()
    refresher = refresher_with(await live_catalog(TOOLS), endpoint, database, told.set)
    refresher.start({ProfileName.MINIMAL})
    await descriptions(refresher)
    await asyncio.wait_for(told.wait(), 10)

    async def all_are_written() -> bool:
        return all(text.startswith("Show get_") for text in await descriptions(refresher))

    await until(all_are_written)
    written = await descriptions(refresher)
    assert all(text.startswith("Show get_") and text.endswith(" now") for text in written)
    await refresher.stop()
    asked = len(endpoint.asked)
    endpoint.status = 500
    again = refresher_with(await live_catalog(TOOLS), endpoint, database)
    again.start(set())
    assert await descriptions(again) == written
    assert len(endpoint.asked) == asked
    await again.stop()
    await database.close()


async def test_an_endpoint_that_fails_costs_nothing_but_a_line_in_the_log(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = 503
    refresher = refresher_with(await live_catalog(TOOLS), endpoint, None)
    refresher.start({ProfileName.MINIMAL})
    before = await descriptions(refresher)
    await until(lambda: caplog.records)
    assert await descriptions(refresher) == before
    assert len(before) > 3
    assert "503" in caplog.text
    assert "Using words from the tools themselves" in caplog.text
    assert len(endpoint.asked) == 1
    await refresher.stop()
