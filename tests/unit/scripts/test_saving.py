"""Saving a script: what it takes, uses and may do is known before it is kept, and nothing else is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.db.scripts import ScriptRows
from mcp_optimizer.domain.caller import LOCAL, Caller, Principal, Risk
from mcp_optimizer.errors import CallRefused, InvalidRequest, OptimizerError
from mcp_optimizer.scripts.saving import WantedScript
from tests.unit.scripts.stored_world import OPEN_CARDS, World, kanban


async def test_parameters_that_are_not_given_are_those_that_the_source_leaves_open(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    saved = await world.save()
    assert [str(one) for one in saved.parameters] == ["board:integer"]
    assert saved.risk is Risk.READ
    [used] = saved.uses
    assert (used.name, used.may_change) == ("kanban__list_cards", False)
    given = replace(OPEN_CARDS, name="other", parameters=("board:integer=3",))
    assert (await world.save(given)).input_schema["properties"] == {"board": {"type": "integer", "default": 3}}
    await world.gateway.call("other", {})
    assert world.runs.given[-1][2] == {"board": 3}


@pytest.mark.parametrize(
    ("source", "may_change", "risk", "hints"),
    [
        ("kanban.list_cards(board_id=1)", (), "read", {"readOnlyHint": True}),
        ("kanban.move_card(card_id=1)", ("move_card",), "write", {"readOnlyHint": False, "destructiveHint": False}),
        (
            "call('kanban__delete_board', board_id=1)\nkanban.move_card(card_id=1)",
            ("kanban.move_card", "kanban__delete_board"),
            "destructive",
            {"readOnlyHint": False, "destructiveHint": True},
        ),
    ],
)
async def test_its_class_is_that_of_the_worst_tool_it_may_use(
    source: str, may_change: tuple[str, ...], risk: str, hints: dict[str, bool], rows: ScriptRows
) -> None:
    world = World(rows, await kanban())
    await world.save(WantedScript("tidy", source, "Tidy up", may_change=may_change))
    tool = world.gateway.resolve("tidy")
    assert tool.record.details.annotations == hints
    assert world.gateway.permissions.views.decide(LOCAL, tool).risk.risk.value == risk
    reader = Caller(principal=Principal("1", "key:reader", risk=Risk.READ))
    if risk == "read":
        await world.gateway.call("tidy", {}, caller=reader)
    else:
        with pytest.raises(CallRefused):
            await world.gateway.call("tidy", {}, caller=reader)


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"name": "a__b"}, "begins with a letter"),
        ({"description": "two\nlines"}, "one line"),
        ({"source": "x = ("}, "line 1: .* never closed"),
        ({"source": "(" * 5_000 + ")" * 5_000}, "line 1: |too deeply"),
        ({"source": "-" * 19_000 + "1"}, "too deeply|line 1: "),
        ({"source": "x" * 30_000}, "30,000 characters; 20,000 are allowed"),
        ({"source": "\nkanban.list_card(board_id=1)"}, "Line 2: kanban has no tool 'list_card'. Nearest: list_cards"),
        ({"source": "kanbn.list_cards()"}, "Line 1: there is no server 'kanbn'. Nearest: kanban"),
        ({"source": "call('nothing_like_it')"}, "Line 1: .*nothing_like_it"),
        ({"source": "call('find_tool')"}, "Line 1: .*gateway's own tools"),
        ({"source": "kanban.move_card(card_id=1)"}, "counts as write. .*--may-change"),
        ({"source": "1", "may_change": ("nothing",)}, "nothing"),
        ({"parameters": ()}, "Line 1: 'board' is neither defined, nor a server, nor a parameter"),
        ({"parameters": ("board:int", "most:int")}, "does not use its parameter 'most'"),
        ({"parameters": ("board:int", "board:str")}, "given twice"),
        ({"parameters": ("board:int", "kanban:str")}, "scripts have that name for a server"),
        ({"source": " + ".join(f"v{n}" for n in range(21))}, "21 parameters .* 20 are allowed"),
        ({"source": "import"}, "line 1: Expected|invalid syntax"),
        ({"source": "open_cards2 = call('scripts__open_cards')"}, "open_cards"),
    ],
)
async def test_what_cannot_be_a_script_is_refused_and_not_kept(
    wanted: dict[str, Any], said: str, rows: ScriptRows
) -> None:
    world = World(rows, await kanban())
    with pytest.raises(OptimizerError, match=said) as caught:
        await world.save(replace(OPEN_CARDS, **wanted))
    assert len(str(caught.value)) < 1_000
    assert await rows.all(10) == []


async def test_a_script_that_the_checker_rejects_is_not_kept(rows: ScriptRows) -> None:
    world = World(rows, await kanban(), problems=["list_cards takes no 'boardid'."])
    with pytest.raises(InvalidRequest, match=r"not saved\. line 1: list_cards takes no"):
        await world.save()
    assert await rows.all(10) == []


async def test_nothing_is_overwritten_unasked_and_their_number_is_limited(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    with pytest.raises(InvalidRequest, match=r"already\. Replace it with --replace"):
        await world.save()
    await world.save(replace(OPEN_CARDS, description="Others"), replaces=True)
    assert world.gateway.resolve("open_cards").record.details.description == "Others"
    for name in ("a", "b"):
        await world.save(replace(OPEN_CARDS, name=name))
    with pytest.raises(InvalidRequest, match=r"3 stored scripts already \(limits.stored_scripts\)"):
        await world.save(replace(OPEN_CARDS, name="c"))


async def test_a_stored_script_cannot_call_stored_scripts(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    with pytest.raises(InvalidRequest, match="a script cannot call stored scripts"):
        await world.save(WantedScript("again", "call('open_cards', board=1)", "Again"))
