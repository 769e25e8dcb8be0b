"""Stored scripts in a gateway: found and called as tools, and not run when what they use is not what it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_optimizer.db.scripts import ScriptRows
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.errors import InvalidArguments, InvalidRequest, OptimizerError
from mcp_optimizer.scripts.saving import WantedScript
from mcp_optimizer.scripts.stored import ScriptState
from tests.unit.catalogs import down, live_catalog, mcp_tool, running
from tests.unit.scripts.stored_world import DELETE, LIST, MOVE, OPEN_CARDS, World, kanban


async def test_a_saved_script_is_found_listed_and_called_by_its_name(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    found = await world.gateway.search("open cards of a board")
    assert found.tools[0].tool.key == ("scripts", "open_cards")
    assert [tool.name for tool in world.gateway.list_tools("scripts").tools] == ["open_cards"]
    for name in ("open_cards", "scripts__open_cards", "scripts.open_cards"):
        result = await world.gateway.call(name, {"board": 7})
        assert result["content"][0]["text"] == "for local"
        assert result["_meta"]["mcp-optimizer/tool"]["server"] == "scripts"
    assert world.runs.given[0] == (OPEN_CARDS.source, (), {"board": 7}, ScriptMode.READ)
    assert not world.pool.calls


async def test_arguments_are_validated_as_those_of_any_tool(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    for wrong in ({}, {"board": "x"}, {"board": 1, "more": 2}):
        with pytest.raises(InvalidArguments):
            await world.gateway.call("open_cards", wrong)
        with pytest.raises(InvalidRequest):
            await world.gateway.pass_on("open_cards", wrong, LOCAL)
    assert not world.runs.given


async def test_a_script_is_checked_again_when_a_tool_changes_and_not_run_if_it_does_not_fit(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    before = world.checks
    await world.now(running("kanban", mcp_tool("list_cards", "List cards", {"board_id": {"type": "integer"}}), MOVE))
    await world.gateway.call("open_cards", {"board": 1})
    await world.gateway.call("open_cards", {"board": 1})
    assert world.checks == before + 1
    world.problems = ["list_cards takes no 'board_id'."]
    await world.now(running("kanban", mcp_tool("list_cards", "List cards", {"boardId": {"type": "integer"}}), MOVE))
    for _ in range(2):
        with pytest.raises(InvalidRequest) as caught:
            await world.gateway.call("open_cards", {"board": 1})
    for part in ("'list_cards' changed", "takes no 'board_id'", "script save open_cards FILE --replace"):
        assert part in str(caught.value)
    assert world.checks == before + 2
    assert len(world.runs.given) == 2
    assert (await world.states())["open_cards"][0] is ScriptState.BROKEN
    world.problems = []
    await world.save(replace(OPEN_CARDS, source="kanban.list_cards(boardId=board)"), replaces=True)
    await world.gateway.call("open_cards", {"board": 1})


async def test_a_tool_that_disappears_or_gets_worse_breaks_the_script(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    await world.now(running("kanban", MOVE))
    assert (await world.states())["open_cards"][1].startswith("'kanban' has no tool 'list_cards' any more.")
    with pytest.raises(InvalidRequest, match=r"is not run\. 'kanban' has no tool"):
        await world.gateway.call("open_cards", {"board": 1})
    await world.now(running("kanban", mcp_tool("list_cards", annotations={"readOnlyHint": False})))
    with pytest.raises(InvalidRequest, match="counts as write now, and the script was saved as one that does no more"):
        await world.gateway.call("open_cards", {"board": 1})
    assert not world.runs.given


async def test_a_script_waits_for_a_server_that_is_down_and_needs_no_saving(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    await world.now(down("kanban"))
    state, reason = (await world.states())["open_cards"]
    assert state is ScriptState.WAITING
    assert "it exited with code 1" in reason
    assert "save" not in reason
    await world.now(running("kanban", LIST, MOVE, DELETE))
    await world.gateway.call("open_cards", {"board": 1})


async def test_where_scripts_only_read_a_script_that_changes_something_is_not_run_nor_saved(rows: ScriptRows) -> None:
    moving = WantedScript("tidy", "kanban.move_card(card_id=1)", "Tidy up", may_change=("move_card",))
    await World(rows, await kanban()).save(moving)
    world = World(rows, await kanban(), ScriptMode.READ)
    await world.scripts.refresh()
    await world.catalog.caught_up()
    with pytest.raises(InvalidRequest, match="scripts may only read here"):
        await world.gateway.call("tidy", {})
    with pytest.raises(InvalidRequest, match='scripts = "write" such a script can be saved'):
        await world.save(replace(moving, name="other"))


async def test_what_another_gateway_saves_and_deletes_is_known_after_the_next_look(rows: ScriptRows) -> None:
    one, other = World(rows, await kanban()), World(rows, await kanban())
    await one.save()
    await other.scripts.refresh()
    await other.catalog.caught_up()
    await other.gateway.call("open_cards", {"board": 1})
    await rows.delete("open_cards")
    await one.scripts.refresh()
    await one.catalog.caught_up()
    assert "scripts" not in one.gateway.snapshot.states
    with pytest.raises(OptimizerError):
        await one.gateway.call("open_cards", {"board": 1})


async def test_a_script_for_other_servers_is_not_in_this_catalog(rows: ScriptRows) -> None:
    await World(rows, await kanban()).save()
    world = World(rows, await live_catalog(running("files", mcp_tool("read_file"))), configured=("files",))
    await world.scripts.refresh()
    await world.catalog.caught_up()
    assert [tool.name for tool in world.gateway.snapshot.running] == ["read_file"]
    assert (await world.states())["open_cards"][0] is ScriptState.ELSEWHERE


async def test_a_server_of_the_user_called_scripts_keeps_its_name_and_its_calls(rows: ScriptRows) -> None:
    catalog = await live_catalog(running("kanban", LIST), running("scripts", mcp_tool("deploy", "Deploy it")))
    world = World(rows, catalog, configured=("kanban", "scripts"))
    await world.save()
    assert world.gateway.resolve("open_cards").server == "stored_scripts"
    await world.gateway.call("scripts__deploy", {})
    assert [server for server, *_ in world.pool.calls] == ["scripts"]


async def test_a_server_called_scripts_that_comes_later_takes_the_name_over(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    assert world.gateway.resolve("open_cards").server == "scripts"
    world.configured.append("scripts")
    await world.now(running("scripts", mcp_tool("open_cards", "A tool of the same name")))
    await world.gateway.call("scripts__open_cards", {})
    assert [server for server, *_ in world.pool.calls] == ["scripts"]
    await world.gateway.call("stored_scripts__open_cards", {"board": 1})
    assert len(world.runs.given) == 1
