"""Stored scripts in the database: nothing is overwritten unasked, and every change shows in the mark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.scripts import ScriptRows
from mcp_optimizer.db.tables import stored_script
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter, StoredScript, UsedTool

SCRIPT = StoredScript(
    "open_cards",
    'kanban.list_cards(board_id=board)\n"ü 漢"',
    "The open cards of a board",
    (ScriptParameter("board", ParameterType.INTEGER), ScriptParameter("most", ParameterType.ANY, "[1, null]")),
    (UsedTool("kanban", "list_cards", "abc"), UsedTool("kanban", "move_card", "def", may_change=True)),
    Risk.WRITE,
)


@asynccontextmanager
async def opened(place: Path | str) -> AsyncIterator[ScriptRows]:
    database = await open_database(place)
    try:
        yield ScriptRows(database)
    finally:
        await database.close()


async def test_a_script_comes_back_as_it_was_saved(place: Path | str) -> None:
    async with opened(place) as scripts:
        assert await scripts.save(SCRIPT, 10, replaces=False) == ""
        [found] = await scripts.all(10)
        assert replace(found, saved_at_ms=0) == SCRIPT
        assert await scripts.named("open_cards") == found
        assert await scripts.named("Open_cards") is None


async def test_nothing_is_overwritten_unless_somebody_says_so(place: Path | str) -> None:
    other = replace(SCRIPT, source="1", description="Another")
    async with opened(place) as scripts, opened(place) as others:
        saved = await asyncio.gather(*(one.save(SCRIPT, 10, replaces=False) for one in (scripts, others)))
        assert sorted(saved) == ["", "name"]
        assert await others.save(other, 10, replaces=False) == "name"
        assert [one.source for one in await scripts.all(10)] == [SCRIPT.source]
        assert await others.save(other, 10, replaces=True) == ""
        assert [one.source for one in await scripts.all(10)] == ["1"]


async def test_every_change_changes_the_mark(place: Path | str) -> None:
    async with opened(place) as scripts:
        marks = [await scripts.mark()]
        for _ in range(3):
            await scripts.save(SCRIPT, 10, replaces=True)
            marks.append(await scripts.mark())
        assert await scripts.delete(SCRIPT.name)
        assert not await scripts.delete(SCRIPT.name)
        assert len(set(marks)) == len(marks)
        assert await scripts.mark() == marks[0]


async def test_there_is_a_limit_on_their_number_but_not_on_replacing_one(place: Path | str) -> None:
    async with opened(place) as scripts:
        said = [await scripts.save(replace(SCRIPT, name=name), 2, replaces=False) for name in ("a", "b", "c")]
        assert said == ["", "", "many"]
        assert await scripts.save(replace(SCRIPT, name="b"), 2, replaces=True) == ""
        assert [one.name for one in await scripts.all(1)] == ["a"]


@pytest.mark.parametrize("broken", ['[{"name": "x", "type": "tensor"}]', "nonsense", "[1]", '[{"kind": "x"}]'])
async def test_a_script_that_another_version_wrote_differently_is_left_out(broken: str, place: Path | str) -> None:
    database = await open_database(place)
    scripts = ScriptRows(database)
    await scripts.save(SCRIPT, 10, replaces=False)
    await scripts.save(replace(SCRIPT, name="other"), 10, replaces=False)
    async with database.engine.begin() as connection:
        await connection.execute(update(stored_script).where(stored_script.c.name == "other").values(parameters=broken))
    assert [one.name for one in await scripts.all(10)] == ["open_cards"]
    await database.close()
