"""Stored scripts in a gateway: found and called as tools, and not run when what they use is not what it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.scripts import ScriptRows
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.domain.stored_script import StoredScript
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import CallRefused, InvalidArguments, InvalidRequest, OptimizerError
from mcp_optimizer.gateway.built_in import BuiltInServers
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions
from mcp_optimizer.gateway.views import Views
from mcp_optimizer.limits import Limits
from mcp_optimizer.policy.access import Policy
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.saving import WantedScript
from mcp_optimizer.scripts.standing import ScriptState
from mcp_optimizer.scripts.stored import ScriptSources, StoredScripts
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import RecordingPool, down, live_catalog, mcp_tool, new_gateway, running

LIST = mcp_tool("list_cards", "List the cards of a board", {"board_id": {"type": "integer"}})
MOVE = mcp_tool("move_card", "Move a card", {"card_id": {"type": "integer"}})
DELETE = mcp_tool("delete_board", "Delete a board", {"board_id": {"type": "integer"}})
OPEN_CARDS = WantedScript(
    "open_cards",
    "cards = kanban.list_cards(board_id=board)\n[card for card in cards if card['open']]",
    "The open cards of a board",
)


class Runs:
    """Stands where scripts are run; keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, tuple[str, ...], dict[str, Any], ScriptMode | None]] = []

    async def run(
        self,
        script: str,
        caller: Caller,
        *,
        may_change: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
        mode: ScriptMode | None = None,
    ) -> dict[str, Any]:
        self.given.append((script, tuple(may_change), dict(arguments or {}), mode))
        return {"content": [{"type": "text", "text": f"for {caller.principal.name}"}]}


class World:
    """A catalog, a gateway and the stored scripts of a database."""

    def __init__(
        self,
        rows: ScriptRows,
        catalog: LiveCatalog,
        mode: ScriptMode = ScriptMode.WRITE,
        problems: Sequence[str] = (),
        configured: Sequence[str] = ("kanban",),
        policy: Policy | None = None,
    ) -> None:
        self.catalog, self.runs, self.pool = catalog, Runs(), RecordingPool()
        self.problems, self.checks, self.configured = list(problems), 0, list(configured)
        built_in, policy = BuiltInServers(self.pool), policy or Policy()
        self.gateway: Gateway = new_gateway(
            catalog, pool=self.pool, permissions=Permissions(Views(policy)), built_in=built_in
        )

        async def stored() -> ScriptRows:
            return rows

        sources = ScriptSources(
            stored,
            catalog,
            built_in,
            policy,
            self.runs,
            lambda: self.configured,
            mode,
            Limits(stored_scripts=3),
            self._check,
        )
        self.scripts = StoredScripts(sources)

    async def _check(self, _script: StoredScript, _toolbox: Toolbox) -> Sequence[str]:
        self.checks += 1
        return self.problems

    async def save(self, wanted: WantedScript = OPEN_CARDS, *, replaces: bool = False) -> StoredScript:
        saved = await self.scripts.save(wanted, replaces=replaces)
        await self.catalog.caught_up()
        return saved

    async def now(self, *states: UpstreamState) -> None:
        for state in states:
            self.scripts.on_state(state)
            self.catalog.on_state(state)
        await self.catalog.caught_up()

    async def states(self) -> dict[str, tuple[ScriptState, str]]:
        return {script.name: (found.state, found.reason) for script, found in await self.scripts.all()}


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[ScriptRows]:
    database = await open_database(tmp_path / "catalog.db")
    yield ScriptRows(database)
    await database.close()


async def kanban(*tools: McpTool) -> LiveCatalog:
    return await live_catalog(running("kanban", *(tools or (LIST, MOVE, DELETE))))


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


async def test_arguments_are_validated_as_those_of_any_tool(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    for wrong in ({}, {"board": "x"}, {"board": 1, "more": 2}):
        with pytest.raises(InvalidArguments):
            await world.gateway.call("open_cards", wrong)
        with pytest.raises(InvalidRequest):
            await world.gateway.pass_on("open_cards", wrong, LOCAL)
    assert not world.runs.given


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


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"name": "a__b"}, "begins with a letter"),
        ({"description": "two\nlines"}, "one line"),
        ({"source": "x = ("}, "Line 1 of the script is no Python"),
        ({"source": "(" * 5_000 + ")" * 5_000}, "no Python|too deeply"),
        ({"source": "-" * 19_000 + "1"}, "too deeply|no Python"),
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
        ({"source": "import"}, "no Python"),
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
    world = World(rows, await kanban(), problems=["Line 1: list_cards takes no 'boardid'."])
    with pytest.raises(InvalidRequest, match=r"not saved\. Line 1: list_cards takes no"):
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


async def test_a_script_is_checked_again_when_a_tool_changes_and_not_run_if_it_does_not_fit(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    before = world.checks
    await world.now(running("kanban", mcp_tool("list_cards", "List cards", {"board_id": {"type": "integer"}}), MOVE))
    await world.gateway.call("open_cards", {"board": 1})
    await world.gateway.call("open_cards", {"board": 1})
    assert world.checks == before + 1
    world.problems = ["Line 1: list_cards takes no 'board_id'."]
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


async def test_a_stored_script_cannot_call_stored_scripts(rows: ScriptRows) -> None:
    world = World(rows, await kanban())
    await world.save()
    with pytest.raises(InvalidRequest, match="a script cannot call stored scripts"):
        await world.save(WantedScript("again", "call('open_cards', board=1)", "Again"))
