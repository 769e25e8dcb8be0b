"""Stored scripts as people keep them and clients use them: commands, a gateway on stdio and over HTTP, real servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import Finished, command, demo_entry, gateway_at, over_stdio, until_found
from tests.waiting import until
from tests.warm import warm_server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

CHANGING = Path(__file__).parents[1] / "servers" / "changing.py"
BUSY = """
cards = kanban.list_cards(board_id=board)["cards"]
by_owner = {}
for card in cards:
    by_owner[card["owner_user_id"]] = by_owner.get(card["owner_user_id"], 0) + 1
sorted(count for count in by_owner.values() if count >= least)
"""
SAID = ("--description", "How many cards the busy people of a board have")


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"kanban": demo_entry("kanban")})


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "write")
    monkeypatch.setenv("MCP_OPTIMIZER_ENCODER", "none")
    return ("--database", tmp_path / "catalog.db")


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    path = tmp_path / "busy.py"
    path.write_text(BUSY)
    return path


@asynccontextmanager
async def client_of(config: Path, transport: str, era: str, *options: object) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = over_stdio(config, *options, mode=era)
        else:
            client = Client(await stack.enter_async_context(gateway_at(config, *options)), mode=era)
        await stack.enter_async_context(client)
        yield client


async def script(config: Path, options: tuple[object, ...], *arguments: object, cold: bool = False) -> Finished:
    return await command("script", *arguments, "--config", config, *options, cold=cold)


def text(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


async def called(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> types.CallToolResult:
    return await client.call_tool("call_tool", {"tool_name": name, "parameters": arguments, **more})


async def refused(client: Client, name: str, arguments: dict[str, Any], said: str = "") -> types.CallToolResult:
    """Call a tool until that fails as it does when the gateway has heard of a change."""
    results: list[types.CallToolResult] = []

    async def fails() -> bool:
        results.append(await called(client, name, arguments))
        return bool(results[-1].is_error) and said in text(results[-1])

    await until(fails, "the call fails", 15)
    return results[-1]


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_script_that_is_saved_while_a_gateway_runs_is_a_tool_of_it(
    transport: str, era: str, config: Path, options: tuple[object, ...], busy: Path
) -> None:
    async with client_of(config, transport, era, *options) as client:
        await until_found(client, "list cards", "list_cards")
        saved = await script(config, options, "save", "busy_people", busy, *SAID, "--param", "board:int",
                             "--param", "least:int=1")  # fmt: skip
        assert saved.code == 0, saved.err
        assert "the tool busy_people of the server scripts" in saved.out
        await until_found(client, "how many cards the busy people have", "busy_people")
        one = await called(client, "busy_people", {"board": 1})
        assert not one.is_error, text(one)
        counts = json.loads(text(one))
        assert counts
        assert counts == sorted(counts)
        direct = await called(client, "scripts__busy_people", {"board": 1, "least": max(counts)})
        assert json.loads(text(direct)) == [count for count in counts if count == max(counts)]
        wrong = await called(client, "busy_people", {"board": "x"})
        assert wrong.is_error
        listed = await client.call_tool("list_tools", {"server": "scripts"})
        assert "busy_people" in text(listed)
        asked = {"tool_description": "how many cards the busy people have", "detail": "python"}
        assert "# busy_people: only with call_tool" in text(await client.call_tool("find_tool", asked))
    reported = (await command("report", "--config", config, *options, "--json")).json["usage"]
    assert reported["scripts"]["runs"] >= 2


async def test_commands_list_show_run_and_delete_it(config: Path, options: tuple[object, ...], busy: Path) -> None:
    saved = await script(config, options, "save", "busy_people", busy, *SAID, "--json", cold=True)
    assert saved.code == 0, saved.err
    assert saved.json["parameters"] == ["board:integer", "least:any"]
    assert saved.json["uses"] == ["kanban__list_cards"]
    assert saved.json["state"] == "ready"
    again = await script(config, options, "save", "busy_people", busy, *SAID)
    assert again.code == 1
    assert "Replace it with --replace" in again.err
    assert (await script(config, options, "save", "busy_people", busy, *SAID, "--replace")).code == 0
    [row] = (await script(config, options, "list", "--json")).json["scripts"]
    assert (row["name"], row["state"]) == ("busy_people", "not checked")
    [row] = (await script(config, options, "list", "--json", "--fresh")).json["scripts"]
    assert row["state"] == "ready"
    assert (await script(config, options, "show", "busy_people", "--source")).out.strip() == BUSY.strip()
    run = await script(config, options, "run", "busy_people", '{"least": 1}', "--arg", "board=1")
    assert run.code == 0, run.err
    assert json.loads(run.out)
    wrong = await script(config, options, "run", "busy_people", "--arg", "board=x", "--arg", "least=1")
    assert wrong.code == 1
    assert (await script(config, options, "delete", "busy_people")).code == 0
    gone = await script(config, options, "show", "busy_people")
    assert gone.code == 2
    assert "no stored script 'busy_people'. Stored: none" in gone.err
    audited = await command("audit", "--json", *options)
    assert "script/save" in audited.out
    assert "script/delete" in audited.out


async def test_while_scripts_are_off_the_commands_say_what_to_enable(
    config: Path, options: tuple[object, ...], busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await script(config, options, "save", "busy_people", busy, *SAID)).code == 0
    monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "off")
    for refused in (("save", "other", busy, *SAID), ("run", "busy_people")):
        done = await script(config, options, *refused)
        assert done.code == 2
        assert 'scripts = "read"' in done.err
    listed = await script(config, options, "list")
    assert (listed.code, 'scripts = "read"' in listed.err) == (0, True)
    for still in ("show", "delete"):
        assert (await script(config, options, still, "busy_people")).code == 0


async def test_what_is_wrong_with_a_script_is_said_before_it_is_kept(
    config: Path, options: tuple[object, ...], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.py"
    for source, more, said in (
        ("kanban.list_crads()", (), "Line 1: kanban has no tool 'list_crads'. Nearest: list_cards"),
        ("kanban.delete_card(card_id=1)", (), "--may-change"),
        ("1", ("--param", "x:tensor"), "unknown type"),
        ("x = (", (), "line 1: '(' was never closed"),
    ):
        path.write_text(source)
        done = await script(config, options, "save", "wrong", path, *SAID, *more)
        assert done.code == 1
        assert said in done.err, done.err
    path.write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in (await script(config, options, "save", "wrong", path, *SAID)).err
    assert "Cannot read" in (await script(config, options, "save", "wrong", tmp_path / "none.py", *SAID)).err
    assert (await script(config, options, "list", "--json")).json == {"scripts": []}


async def test_a_script_that_changes_something_does_so_only_where_that_is_allowed(
    config: Path, options: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "move.py"
    path.write_text("kanban.update_card(card_id=card, title=title)\nkanban.get_card(card_id=card)['title']")
    saved = await script(config, options, "save", "rename", path, *SAID, "--may-change", "kanban.update_card", "--json")
    assert saved.code == 0, saved.err
    assert saved.json["may_change"] == ["kanban__update_card"]
    assert saved.json["risk"] != "read"
    run = await script(config, options, "run", "rename", "--arg", "card=127", "--arg", "title=Another title")
    assert "Another title" in run.out, run.err
    monkeypatch.setenv("MCP_OPTIMIZER_SCRIPTS", "read")
    refused = await script(config, options, "run", "rename", "--arg", "card=127", "--arg", "title=Third")
    assert refused.code == 1
    assert "scripts may only read here" in refused.err


def letters(day: str) -> list[dict[str, Any]]:
    """What a server lists: a tool with one parameter, and the one with which it says that its list changed."""
    schema = {
        "type": "object",
        "properties": {day: {"type": "integer"}},
        "required": [day],
        "additionalProperties": False,
    }
    only_reads = {"annotations": {"readOnlyHint": True}}
    relist = {"name": "relist", "inputSchema": {"type": "object"}, **only_reads}
    return [relist, {"name": "get_letter", "inputSchema": schema, **only_reads}]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_tool_that_changes_or_goes_away_breaks_the_script_and_everybody_is_told(
    transport: str, write_servers: WriteServers, options: tuple[object, ...], tmp_path: Path
) -> None:
    tools, source = tmp_path / "tools.json", tmp_path / "script.py"
    tools.write_text(json.dumps(letters("day")))
    source.write_text("post.get_letter(day=today)")
    entry = {**warm_server(CHANGING, tools), "trust": "off"}
    config = write_servers({"post": entry})
    async with client_of(config, transport, "auto", *options) as client:
        await until_found(client, "get letter", "get_letter")
        saved = await script(config, options, "save", "letters", source, "--description", "The letter of today")
        assert saved.code == 0, saved.err
        assert "today:integer" in saved.out
        await until_found(client, "letter of today", "letters")
        assert text(await called(client, "letters", {"today": 1})) == "called get_letter"
        tools.write_text(json.dumps(letters("date")))
        await called(client, "relist", {})
        changed = await refused(client, "letters", {"today": 1}, "'get_letter' changed")
        assert "'day'" in text(changed)
        assert "script save letters FILE --replace" in text(changed)
        tools.write_text(json.dumps(letters("day")[:1]))
        await called(client, "relist", {})
        await refused(client, "letters", {"today": 1}, "'post' has no tool 'get_letter' any more")
        [row] = (await script(config, options, "list", "--json")).json["scripts"]
        assert row["state"] == "broken"
        assert "get_letter" in row["reason"]
    doctor = await command("doctor", "--config", config, *options)
    assert doctor.code == 1
    assert "The stored script letters cannot be called" in doctor.out


async def test_a_script_of_a_script_is_an_unknown_name(
    config: Path, options: tuple[object, ...], tmp_path: Path, busy: Path
) -> None:
    assert (await script(config, options, "save", "busy_people", busy, *SAID)).code == 0
    again = tmp_path / "again.py"
    again.write_text("name = 'busy_' + 'people'\ncall(name, board=1, least=1)")
    assert (await script(config, options, "save", "again", again, *SAID)).code == 0
    run = await script(config, options, "run", "again")
    assert run.code == 1
    assert "cannot call stored scripts" in run.out
    again.write_text("call('busy_people', board=1, least=1)")
    refused = await script(config, options, "save", "again", again, *SAID, "--replace")
    assert "cannot call stored scripts" in refused.err


async def test_rules_are_about_the_script_and_about_its_calls(
    config: Path, options: tuple[object, ...], busy: Path, tmp_path: Path
) -> None:
    assert (await script(config, options, "save", "busy_people", busy, *SAID)).code == 0
    arguments = ("run", "busy_people", '{"board": 1, "least": 1}')
    rules = tmp_path / "rules.toml"
    for server, tool in (("scripts", "busy_people"), ("kanban", "list_cards")):
        rules.write_text(f'[[rules]]\neffect = "deny"\nserver = "{server}"\ntool = "{tool}"\nreason = "Not this."\n')
        run = await script(config, options, *arguments, "--settings", rules)
        assert run.code == 1
        assert "Not this." in run.out + run.err


async def test_two_gateways_on_one_database_see_what_the_other_keeps_and_forgets(
    config: Path, options: tuple[object, ...], busy: Path
) -> None:
    async with (
        client_of(config, "http", "auto", *options) as one,
        client_of(config, "http", "auto", *options) as other,
    ):
        await until_found(one, "list cards", "list_cards")
        assert (await script(config, options, "save", "busy_people", busy, *SAID)).code == 0
        for client in (one, other):
            await until_found(client, "how many cards the busy people have", "busy_people")
        assert (await script(config, options, "delete", "busy_people")).code == 0
        for client in (one, other):
            await refused(client, "scripts__busy_people", {"board": 1, "least": 1})
