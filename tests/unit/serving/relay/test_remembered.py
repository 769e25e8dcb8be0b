"""What servers listed last is listed while they start, to whom they exist, and is kept for the next start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.relay.directory import Directory
from mcp_optimizer.serving.relay.listings import KINDS, PROMPTS, RESOURCES, TEMPLATES, ListingKind
from mcp_optimizer.upstream.state import UpstreamState
from tests.waiting import other_tasks, until

NOTES = {
    "prompts": [{"name": "sum up"}],
    "resources": [{"uri": "note://1"}],
    "resourceTemplates": [{"uriTemplate": "day://{day}"}],
}
ALL: dict[str, Any] = {"prompts": {}, "resources": {}, "completions": {}}


class Memory:
    """Stored lists, by server."""

    def __init__(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        self.stored = {name: dict(lists) for name, lists in stored.items()}
        self.go = asyncio.Event()
        self.go.set()
        self.writes = self.reads = 0

    async def recall_lists(self, specs: Sequence[ServerSpec]) -> Mapping[str, Mapping[str, Any]]:
        self.reads += 1
        await self.go.wait()
        return {spec.name: self.stored[spec.name] for spec in specs if spec.name in self.stored}

    async def store_lists(self, state: UpstreamState, lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.writes += 1
        self.stored.setdefault(state.name, {}).update({kind: list(entries) for kind, entries in lists.items()})


class World:
    """Servers that start, and list what a test gives them when they are up."""

    def __init__(self, *servers: str, **stored: Mapping[str, Any]) -> None:
        self.memory = Memory(stored)
        self.lists: dict[str, Mapping[str, Any]] = {}
        self.known: dict[str, UpstreamState] = {}
        self.asked: list[tuple[str, str]] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.announced: list[str] = []
        self.directory = Directory(
            lambda: self.known, self.call, Limits(list_seconds=5), self.announced.append, self.memory
        )
        for server in servers:
            self.becomes(server, ServerStatus.STARTING)

    def becomes(self, server: str, status: ServerStatus, **changes: Any) -> None:
        state = UpstreamState(ServerSpec(server, Transport.STDIO), status, **changes)
        self.known[server] = state
        if status is not ServerStatus.RUNNING:
            self.directory.forget(server)
        self.directory.follow(state)

    def runs(self, server: str, lists: Mapping[str, Any], capabilities: Mapping[str, Any] = ALL) -> None:
        self.lists[server] = lists
        self.becomes(server, ServerStatus.RUNNING, capabilities=capabilities)

    async def call(self, server: str, method: str, _params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((server, method))
        await self.answering.wait()
        if self.known[server].status is not ServerStatus.RUNNING:
            raise ServerUnavailable(server, "down")
        return dict(self.lists[server])

    async def names(self, kind: ListingKind, *hidden: str) -> list[str]:
        await self.directory.recalled()
        found = await self.directory.listed(kind, lambda server: server not in hidden)
        return [entry.public for entry in found.entries]


async def test_a_starting_server_is_listed_as_it_was_and_asked_again_when_it_is_up() -> None:
    world = World("notes", notes=NOTES)
    assert [await world.names(kind) for kind in KINDS] == [["sum up"], ["note://1"], ["day://{day}"]]
    assert world.asked == []
    world.runs("notes", {"prompts": [{"name": "other"}], "resources": [], "resourceTemplates": []})
    await until(lambda: world.memory.stored["notes"]["prompts"] == [{"name": "other"}])
    assert sorted(method for _, method in world.asked) == sorted(kind.method for kind in KINDS)
    assert await world.names(PROMPTS) == ["other"]


async def test_nobody_asks_a_server_that_nobody_asked_for() -> None:
    world = World("notes", notes=NOTES)
    await world.directory.recalled()
    world.runs("notes", NOTES)
    await other_tasks()
    assert world.asked == []


async def test_a_server_that_just_came_up_and_does_not_answer_is_listed_as_it_was() -> None:
    world = World("notes", notes=NOTES)
    await world.directory.recalled()
    world.answering.clear()
    world.runs("notes", {"prompts": [{"name": "other"}]})
    async with asyncio.timeout(2):
        assert await world.names(PROMPTS) == ["sum up"]
    world.answering.set()
    await until(lambda: world.announced == ["prompts"])
    assert await world.names(PROMPTS) == ["other"]


async def test_a_server_that_failed_is_not_listed_and_one_that_crashed_is_while_it_restarts() -> None:
    world = World("notes", notes=NOTES)
    assert await world.names(PROMPTS) == ["sum up"]
    world.becomes("notes", ServerStatus.FAILED)
    assert await world.names(PROMPTS) == []
    world.becomes("notes", ServerStatus.FAILED, is_restarting=True)
    assert await world.names(PROMPTS) == ["sum up"]


async def test_a_server_that_is_removed_is_not_listed_under_its_name_again() -> None:
    world = World("notes", notes=NOTES)
    assert await world.names(PROMPTS) == ["sum up"]
    world.directory.remove("notes")
    world.memory.stored.clear()
    world.becomes("notes", ServerStatus.STARTING)
    assert await world.names(PROMPTS) == []


async def test_what_is_read_after_the_name_came_to_mean_another_server_is_not_listed() -> None:
    world = World(notes=NOTES)
    world.memory.go.clear()
    world.becomes("notes", ServerStatus.STARTING)
    await until(lambda: world.memory.reads)
    other = replace(world.known["notes"].spec, args=("other",))
    world.known["notes"] = replace(world.known["notes"], spec=other)
    world.memory.go.set()
    assert await world.names(PROMPTS) == []


async def test_a_starting_server_that_does_not_exist_for_somebody_is_neither_listed_nor_waited_for() -> None:
    world = World("notes", "secret", notes=NOTES, secret={"prompts": [{"name": "steal"}]})
    assert await world.names(PROMPTS, "secret") == ["sum up"]
    hidden = {"notes", "secret"}
    assert world.directory.unknown(RESOURCES, lambda server: server not in hidden) == []
    assert await world.directory.awaited_prompt("steal", lambda server: server != "secret") is None
    assert await world.directory.awaited_prompt("secret__steal", lambda server: server != "secret") is None
    assert await world.directory.awaited_resource("secret+note://1", lambda server: server != "secret") is None


async def test_names_lead_to_the_starting_server_that_is_meant() -> None:
    world = World("notes", "new", notes=NOTES)
    await world.directory.recalled()
    directory = world.directory
    assert await directory.awaited_prompt("sum up") == "notes"
    assert await directory.awaited_prompt("new__anything") == "new"
    assert await directory.awaited_prompt("unheard of") is None
    for uri in ("note://1", "notes+note://1", "day://{day}", "day://monday"):
        assert await directory.awaited_resource(uri) == "notes"
    assert await directory.awaited_resource("other://1") is None
    world.runs("new", NOTES)
    # Both have it now, and nobody guesses.
    assert await directory.awaited_prompt("sum up") is None
    assert await directory.awaited_resource("day://monday") is None
    world.runs("notes", NOTES)
    assert await directory.awaited_prompt("sum up") is None


async def test_a_server_that_was_waited_for_in_vain_is_asked_for_everything_when_it_is_up() -> None:
    world = World("slow")
    await world.directory.recalled()
    assert world.directory.unknown(PROMPTS) == ["slow"]
    world.directory.give_up(PROMPTS)
    assert [world.directory.unknown(kind) for kind in KINDS] == [[], [], []]
    await until(lambda: world.memory.stored.get("slow") == {"prompts": [], "resources": [], "resourceTemplates": []})
    world.runs("slow", NOTES)
    await until(lambda: world.memory.stored["slow"] == NOTES)


async def test_nothing_is_given_up_before_it_is_known_what_is_stored() -> None:
    world = World(notes=NOTES)
    world.memory.go.clear()
    world.becomes("notes", ServerStatus.STARTING)
    world.directory.give_up(PROMPTS)
    world.memory.go.set()
    assert await world.names(PROMPTS) == ["sum up"]
    assert world.memory.writes == 0


async def test_a_server_without_prompts_is_known_to_have_none() -> None:
    world = World("tools only")
    await world.directory.recalled()
    world.runs("tools only", {}, {"tools": {}})
    assert world.directory.unknown(PROMPTS) == []
    await until(lambda: world.memory.stored.get("tools only", {}).get("prompts") == [])


async def test_a_list_that_stays_the_same_is_stored_once() -> None:
    world = World("notes")
    await world.directory.recalled()
    world.runs("notes", NOTES)
    for _ in range(3):
        await world.names(PROMPTS)
    await other_tasks()
    assert world.memory.writes == 1


@pytest.mark.parametrize("stored", [None, "prompts", 7, {"name": "x"}, [None, 7, [], {"name": 7}, {"uri": "x"}]])
async def test_stored_lists_of_any_other_shape_have_no_entries(stored: Any) -> None:
    assert await World("notes", notes={"prompts": stored, "unheard of": []}).names(PROMPTS) == []


async def test_a_starting_server_and_a_running_one_with_the_same_names_are_told_apart() -> None:
    world = World("notes", "other", notes=NOTES)
    await world.directory.recalled()
    world.runs("other", NOTES)
    assert await world.names(PROMPTS) == ["notes__sum up", "other__sum up"]
    assert await world.names(TEMPLATES) == ["notes+day://{day}", "other+day://{day}"]
