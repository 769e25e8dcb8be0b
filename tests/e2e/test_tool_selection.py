"""Servers and tools that the server file turns off are not listed, found or called, in either mode."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import Client, MCPError

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import command, over_stdio, said_in, until_found

OPTIONS = ["--database", "none", "--encoder", "none"]


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": {**plain_server("one"), "disabledTools": ["d*", "sleep", "slep"]}})


async def until_listed(client: Client, tool: str) -> list[str]:
    async with asyncio.timeout(15):
        while tool not in (names := [listed.name for listed in (await client.list_tools(cache_mode="bypass")).tools]):
            await asyncio.sleep(0.05)
    return names


async def test_what_is_turned_off_is_neither_found_nor_called(config: Path) -> None:
    async with over_stdio(config, *OPTIONS, "--profile", "full") as client:
        await until_found(client, "draw a picture", "picture")
        names = await until_listed(client, "picture")
        assert not {"die", "sleep"} & set(names)
        asked = {"tool_description": "end the process in the middle of a call", "detail": "schema"}
        found = said_in(await client.call_tool("find_tool", asked))
        assert "die" not in [tool["name"] for tool in found["tools"]]
        refused = await client.call_tool("call_tool", {"tool_name": "die", "parameters": {}})
        assert refused.is_error
        assert "Unknown tool 'die'" in str(refused.content)
        # The selection also applies to a listing that changed.
        await client.call_tool("call_tool", {"tool_name": "grow", "parameters": {}})
        grown = await until_found(client, "grown tool", "grown")
        assert "die" not in [tool["name"] for tool in grown["tools"]]


async def test_what_is_turned_off_does_not_pass_transparently_either(config: Path) -> None:
    async with over_stdio(config, *OPTIONS, "--mode", "transparent") as client:
        assert not {"die", "sleep"} & set(await until_listed(client, "picture"))
        with pytest.raises(MCPError, match="Unknown tool 'die'"):
            await client.call_tool("die", {})


async def test_one_file_can_serve_several_agents_each_with_its_own_servers(write_servers: WriteServers) -> None:
    config = write_servers({name: plain_server(name, "--tools", 11) for name in ("one", "two", "three")})
    async with over_stdio(config, *OPTIONS, "--servers", "three, one") as client:
        await until_found(client, "perform action number 1 of three", "three_action_1")
        listed = await client.call_tool("list_tools", {})
        assert {tool["server"] for tool in said_in(listed)["tools"]} <= {"one", "three"}
    done = await command("servers", "--config", config, "--servers", "one,tow")
    assert done.code == 2
    assert "There is no server 'tow'. Servers: one, two, three." in done.err


async def test_doctor_says_what_is_turned_off_and_what_is_mistyped(config: Path) -> None:
    done = await command("doctor", "--config", config, "--database", "none")
    assert done.code == 0
    assert "2 tools turned off: sleep, die" in done.out
    assert "the server file names the tool 'slep', but this server does not have it" in " ".join(done.out.split())
    # A command that does not show servers reports it on stderr.
    assert "names the tool 'slep'" in (await command("tools", "--config", config, "--database", "none")).err
    [row] = (await command("doctor", "--config", config, "--database", "none", "--json")).json["servers"]
    assert (row["turned_off"], row["no_such_tools"]) == (["sleep", "die"], ["slep"])
    assert row["tools"] == 7
