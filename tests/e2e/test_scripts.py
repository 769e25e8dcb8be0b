"""run_script as a client uses it: over stdio and HTTP, in both eras, with real servers behind the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import command, demo_entry, gateway_at, over_stdio, until_found

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"kanban": demo_entry("kanban")})


@asynccontextmanager
async def client_of(config: Path, transport: str, era: str, *options: object) -> AsyncIterator[Client]:
    chosen = ("--scripts", "read", "--database", "none", "--encoder", "none", *options)
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = over_stdio(config, *chosen, mode=era)
        else:
            client = Client(await stack.enter_async_context(gateway_at(config, *chosen)), mode=era)
        await stack.enter_async_context(client)
        await until_found(client, "list cards", "list_cards")
        yield client


async def run(client: Client, script: str, **more: Any) -> types.CallToolResult:
    return await client.call_tool("run_script", {"script": script, **more})


def text(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


COUNT = """
cards = kanban.list_cards()["cards"]
owners = {}
for card in cards:
    owners[card["owner_user_id"]] = owners.get(card["owner_user_id"], 0) + 1
print(len(cards), "cards")
sorted(owners.values())
"""

SIDE_BY_SIDE = """
import asyncio
async def title(card):
    return kanban.get_card(card_id=card["card_id"])["title"]
async def waited_for(card):
    return (await kanban.get_card(card_id=card["card_id"]))["title"]
cards = kanban.list_cards()["cards"][:5]
one = await asyncio.gather(*[title(card) for card in cards])
two = await asyncio.gather(*[waited_for(card) for card in cards])
tasks = [kanban.get_card(card_id=card["card_id"]) for card in cards]
three = [card["title"] for card in await asyncio.gather(*tasks)]
four = [found["title"] for found in parallel(kanban.get_card, [{"card_id": card["card_id"]} for card in cards])]
five = [kanban.get_card(card["card_id"])["title"] for card in cards]
one == two == three == four == five == [card["title"] for card in cards]
"""


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_script_calls_tools_and_only_its_outcome_comes_back(config: Path, transport: str, era: str) -> None:
    async with client_of(config, transport, era) as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "run_script"]
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        counted = await run(client, COUNT)
        assert text(counted).splitlines()[0] == "50 cards"
        assert sum(json.loads(text(counted).splitlines()[1])) == 50
        assert counted.meta is not None
        about = counted.meta["mcp-optimizer/script"]
        assert (about["calls"], about["changes"]) == (1, 0)
        assert about["keptOut"] > 3_000
        assert text(await run(client, SIDE_BY_SIDE)) == "true"


async def test_scripts_that_only_read_change_nothing(config: Path) -> None:
    async with client_of(config, "stdio", "auto") as client:
        refused = await run(client, "kanban.list_cards()\nkanban.create_tag(name='x')")
        assert refused.is_error
        assert text(refused).startswith("line 2: kanban.create_tag counts as write, and scripts may only read here.")
        hidden = await run(client, "kanban.list_boards()\ncall('create' + '_tag', name='x')")
        assert hidden.is_error
        assert "may only read" in text(hidden)


async def test_a_changing_tool_must_be_named_and_a_failed_script_says_what_it_changed(config: Path) -> None:
    async with client_of(config, "stdio", "auto", "--scripts", "write") as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "run_script"]
        assert tool.annotations is None
        script = "kanban.create_tag(name='one')\nkanban.list_boards()\nkanban.create_tag(name='two')\n1 / 0"
        refused = await run(client, script)
        assert "run the script with may_change: ['kanban.create_tag']. Nothing was called." in text(refused)
        failed = await run(client, script, may_change=["create_tag"])
        assert failed.is_error
        assert text(failed) == (
            "line 4: ZeroDivisionError: division by zero\n"
            "3 calls were made: kanban.create_tag (2 times), kanban.list_boards. 2 of them changed something: "
            "kanban.create_tag (2 times). Do not repeat these."
        )


async def test_a_long_outcome_can_be_read_on(config: Path, tmp_path: Path) -> None:
    async with client_of(config, "stdio", "auto", "--database", tmp_path / "catalog.db") as client:
        cut = await run(client, "for number in range(20_000): print('line', number)")
        assert cut.meta is not None
        kept = cut.meta["mcp-optimizer/result"]
        more = await client.call_tool("read_result", {"result_id": kept["resultId"], "offset": 19_999})
        assert any("line 19999" in block.text for block in more.content if block.type == "text")


async def test_a_failed_call_can_be_handled(config: Path) -> None:
    script = """
try:
    kanban.get_card(card_id=99_999)
except ToolError as error:
    print("handled:", error)
"""
    async with client_of(config, "stdio", "auto") as client:
        handled = await run(client, script)
        assert not handled.is_error
        assert text(handled).startswith("handled: kanban.get_card: There is no card with id 99999.")


async def test_progress_is_told_while_a_script_runs(config: Path) -> None:
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with client_of(config, "http", "auto") as client:
        script = "for _ in range(3): kanban.list_boards()"
        await client.call_tool("run_script", {"script": script}, progress_callback=hear)
    assert told[0] == (1, "call 1: kanban.list_boards")


async def test_without_the_setting_there_is_no_such_tool(config: Path) -> None:
    async with client_of(config, "stdio", "auto", "--scripts", "off") as client:
        assert "run_script" not in {tool.name for tool in (await client.list_tools()).tools}
        refused = await run(client, "1")
        assert refused.is_error
        assert text(refused).startswith("Scripts are off here.")


async def test_a_client_that_gives_up_ends_its_script_and_is_served_on(config: Path) -> None:
    begun = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with client_of(config, "http", "auto") as client:
        # As many as may run at a time for one caller: a script that goes on would keep the next one waiting.
        for _ in range(3):
            begun.clear()
            script = {"script": "while True: kanban.list_boards()"}
            endless = asyncio.create_task(client.call_tool("run_script", script, progress_callback=hear))
            await begun.wait()
            endless.cancel()
            await asyncio.gather(endless, return_exceptions=True)
        assert text(await run(client, "1 + 1")) == "2"


async def test_the_report_says_what_stayed_out_of_the_context(config: Path, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    async with client_of(config, "stdio", "auto", "--database", database) as client:
        await run(client, COUNT)
    shown = await command("report", "--config", config, "--database", database)
    assert "stayed out of the context" in " ".join(shown.out.split())
    reported = (await command("report", "--config", config, "--database", database, "--json")).json
    scripts = reported["usage"]["scripts"]
    assert scripts["runs"] == 1
    assert scripts["kept_out"] > 3_000


async def test_stubs_are_found_and_mistakes_refused_before_anything_is_called(config: Path) -> None:
    async with client_of(config, "stdio", "legacy") as client:
        found = await client.call_tool("find_tool", {"tool_description": "list boards", "detail": "python"})
        assert "kanban.list_boards(workspace_id?: int," in text(found)
        result = await run(client, "boards = kanban.list_boards()['boards']\nprint(boards[0]['titel'], boards[0].name)")
        assert result.is_error
        assert "line 2: the result of kanban.list_boards has no key 'titel' there." in text(result)
        assert "write ['name'], not .name" in text(result)
        right = await run(client, "boards = kanban.list_boards()['boards']\nprint(boards[0]['name'])")
        assert not right.is_error


async def test_every_call_of_a_script_is_in_the_audit(config: Path, tmp_path: Path) -> None:
    database, log = tmp_path / "catalog.db", tmp_path / "audit.jsonl"
    async with client_of(config, "stdio", "auto", "--database", database, "--audit-file", log) as client:
        await run(client, "kanban.list_boards()\nkanban.list_tags()")
        await run(client, "call('create' + '_tag', name='x')")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["tool"] for line in lines if line.get("method") == "tools/call"] == ["list_boards", "list_tags"]
