"""Stored pins: one baseline, exactly what waits, and approvals of what was looked at and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.pins import StoredPins
from mcp_optimizer.domain.pins import NO_MARK, Pins, ServerPin, ToolPin

SERVER = ServerPin("id-1", "start it")
OTHER = ServerPin("id-2", "start another")
TOOLS = {"a": ToolPin("hash-a", b"A", "baseline"), "b": ToolPin("hash-b", b"B", "baseline")}


@asynccontextmanager
async def opened(place: Path | str | None) -> AsyncIterator[StoredPins]:
    database = await open_database(place)
    try:
        yield StoredPins(database)
    finally:
        await database.close()


def hashes(pins: Pins) -> tuple[dict[str, str], dict[str, str]]:
    return (
        {name: pin.hash for name, pin in pins.tools.items()},
        {name: pin.hash for name, pin in pins.waiting_tools.items()},
    )


def _approved(pins: Pins) -> tuple[ServerPin | None, dict[str, ToolPin]]:
    return pins.approved, dict(pins.tools)


async def test_of_several_first_listings_one_is_the_baseline(place: Path | str) -> None:
    async with opened(place) as first, opened(place) as second:
        listings = [{"a": ToolPin(f"hash-{number}", b"A")} for number in range(6)]
        begun = await asyncio.gather(
            *((first, second)[number % 2].begin("x", SERVER, tools) for number, tools in enumerate(listings))
        )
        assert len({one.tools["a"].hash for one in begun}) == 1
        assert begun[0].approved is not None
        assert [(one.approved, dict(one.tools)) for one in begun] == [_approved(await first.read("x"))] * 6
        assert await first.servers() == ["x"]


async def test_what_waits_is_exactly_what_was_said_last_and_keeps_its_time(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.begin("x", SERVER, TOOLS)
        await stored.wait("x", OTHER, {"a": ToolPin("new-a", b"1"), "c": ToolPin("new-c", b"2")})
        first = await stored.whole("x")
        assert hashes(first) == ({"a": "hash-a", "b": "hash-b"}, {"a": "new-a", "c": "new-c"})
        assert first.waiting is not None
        assert (first.waiting.identity, first.waiting_tools["a"].definition) == ("id-2", b"1")
        await stored.wait("x", None, {"a": ToolPin("new-a", b"1")})
        second = await stored.read("x")
        assert hashes(second)[1] == {"a": "new-a"}
        assert second.waiting is None
        assert second.waiting_tools["a"].at_ms == first.waiting_tools["a"].at_ms


async def test_only_what_is_still_as_it_was_looked_at_is_approved(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.begin("x", SERVER, TOOLS)
        await stored.wait("x", OTHER, {"a": ToolPin("new-a", b"1"), "c": ToolPin("new-c", b"2")})
        assert await stored.approve("x", {"a": "seen-before", "b": "hash-b", "nothing": ""}, "me") == []
        before = await stored.marks(["x", "y"])
        assert await stored.approve("x", {"a": "new-a"}, "me", "another") == ["a"]
        assert (await stored.marks(["x"]))["x"] != before["x"]
        assert before["y"] == NO_MARK
        pins = await stored.whole("x")
        assert hashes(pins) == ({"a": "new-a", "b": "hash-b"}, {"c": "new-c"})
        assert (pins.tools["a"].by, pins.tools["a"].definition) == ("me", b"1")
        assert pins.approved is not None
        assert pins.approved.identity == "id-1"
        assert await stored.approve("x", {"c": "new-c"}, "me", "id-2") == ["c"]
        pins = await stored.read("x")
        assert pins.approved is not None
        assert (pins.approved.identity, pins.waiting, pins.waiting_tools) == ("id-2", None, {})
        assert pins.mark == (await stored.marks(["x"]))["x"]


async def test_a_tool_that_nobody_had_seen_is_adopted_once(place: Path | str) -> None:
    async with opened(place) as stored:
        await stored.begin("x", SERVER, {**TOOLS, "off": ToolPin("")})
        await stored.adopt("x", {"off": ToolPin("hash-off", b"O"), "a": ToolPin("other", b"?"), "c": ToolPin("new")})
        await stored.adopt("x", {"off": ToolPin("hash-later", b"?")})
        assert hashes(await stored.read("x"))[0] == {"a": "hash-a", "b": "hash-b", "off": "hash-off"}


async def test_a_server_that_is_forgotten_leaves_others_alone(place: Path | str) -> None:
    async with opened(place) as stored:
        for server in ("x", "y"):
            await stored.begin(server, SERVER, TOOLS)
        assert await stored.reset("x")
        assert not await stored.reset("x")
        assert await stored.read("x") == Pins()
        assert await stored.servers() == ["y"]
        assert hashes(await stored.read("y"))[0] == {"a": "hash-a", "b": "hash-b"}


async def test_names_that_a_database_cannot_hold_are_kept_as_they_are(place: Path | str) -> None:
    odd = ["x\0y", "x\ud800y", "x\x10y", "x\x100000y", "xy", "\0"]
    tools = {name: ToolPin(f"hash-{number}", b"A", "by\0me") for number, name in enumerate(odd)}
    server = "s\0t"
    async with opened(place) as stored:
        await stored.begin(server, ServerPin("id-1", "run\0it"), tools)
        pins = await stored.whole(server)
        assert hashes(pins)[0] == {name: pin.hash for name, pin in tools.items()}
        assert (pins.approved and pins.approved.shown, pins.tools["x\0y"].by) == ("run\0it", "by\0me")
        assert await stored.servers() == [server]
        assert (await stored.marks([server]))[server] == pins.mark
        await stored.wait(server, None, {"x\0y": ToolPin("new"), "\0": ToolPin("other")})
        await stored.wait(server, None, {"x\0y": ToolPin("new")})
        assert hashes(await stored.read(server))[1] == {"x\0y": "new"}
        assert await stored.approve(server, {"x\0y": "new"}, "me") == ["x\0y"]
        assert hashes(await stored.read(server)) == ({**hashes(pins)[0], "x\0y": "new"}, {})
        assert await stored.reset(server)
        assert await stored.read(server) == Pins()


@pytest.mark.slow
async def test_thousands_of_tools_are_written_and_read(tmp_path: Path) -> None:
    many = {f"tool_{number}": ToolPin(f"hash-{number}", b"x") for number in range(3_000)}
    async with opened(tmp_path / "catalog.db") as stored:
        await stored.begin("x", SERVER, many)
        await stored.wait("x", None, many)
        await stored.wait("x", None, {})
        assert hashes(await stored.read("x")) == ({name: pin.hash for name, pin in many.items()}, {})
