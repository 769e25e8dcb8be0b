"""Commands take what people type: words without quotes, names without options, short flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import command, gateway_at
from tests.e2e.test_control import until_reached


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one"), "two": plain_server("two")})


async def test_a_request_needs_no_quotes(config: Path) -> None:
    done = await command("find", "draw", "a", "picture", "--config", config, "--encoder", "none", "--json")
    quoted = await command("find", "draw a picture", "--config", config, "--encoder", "none", "--json")
    assert (done.code, done.out) == (0, quoted.out)


async def test_a_server_is_named_without_an_option(config: Path) -> None:
    listed = (await command("tools", "two", "--config", config, "--json")).json["tools"]
    assert {row["server"] for row in listed} == {"two"}
    shown = (await command("servers", "two", "--config", config, "--json")).json["servers"]
    assert [row["name"] for row in shown] == ["two"]
    checked = (await command("doctor", "two", "--config", config, "--json")).json["servers"]
    assert [row["name"] for row in checked] == ["two"]
    for asked in ("tools", "servers", "doctor"):
        refused = await command(asked, "three", "--config", config)
        assert refused.code != 0
        assert "three" in refused.err


@pytest.mark.parametrize("arguments", [("-h",), ("find", "-h"), ("key", "create", "-h")])
async def test_help_has_a_short_flag(arguments: tuple[str, ...]) -> None:
    done = await command(*arguments)
    assert done.code == 0
    assert "Usage:" in done.out


async def test_yes_has_a_short_flag_and_a_tool_that_is_not_there_is_not_disabled(config: Path) -> None:
    await command("tools", "--config", config)
    refused = await command("disable", "one/pictur", "--config", config)
    assert refused.code == 2
    assert "has no tool 'pictur'. Nearest: picture." in refused.err
    assert (await command("disable", "one/picture", "--config", config)).code == 0
    assert (await command("remove", "two", "-y", "--config", config)).code == 0
    assert list(json.loads(config.read_text())["mcpServers"]) == ["one"]


async def test_several_servers_are_restarted_and_the_gateways_own_address_is_used(config: Path) -> None:
    async with gateway_at(config) as address:
        await until_reached(config)
        done = await command("restart", "one", "two", "--config", config)
        assert (done.code, done.out.count("Restarting")) == (0, 2)
        origin = address.removesuffix("/mcp")
        healthy = await command("health", "--http", origin.removeprefix("http://"))
        assert (healthy.code, healthy.out.startswith("healthy: ")) == (0, True)
        made = await command("key", "create", "--name", "ci", "--config", config, "--json")
        shown = await command("key", "create", "--name", "ci2", "--config", config)
        assert made.code == 0, made.err
        assert f'"url": "{origin}/mcp"' in shown.out


async def test_a_version_may_be_given_as_npm_spells_it() -> None:
    from mcp_optimizer.config.packages.draft import source_of

    assert source_of("pypi:mcp-server-time@0.6.2").text == "mcp-server-time==0.6.2"
    assert source_of("pypi:mcp[cli]@1.2").text == "mcp[cli]==1.2"
    assert source_of("npm:@scope/name@1.2.3").text == "@scope/name@1.2.3"


async def test_the_demo_leaves_nothing_among_the_users_own_approvals(config: Path) -> None:
    await command("tools", "--demo", "--encoder", "none")
    listed = (await command("trust", "list", "--config", config, "--json")).json
    assert not {"kanban", "sql", "web"} & {row["server"] for row in listed["servers"]}


async def test_approvals_fit_a_narrow_terminal(config: Path) -> None:
    await command("tools", "--config", config)
    done = await command("trust", "list", "--config", config, env={"COLUMNS": "80"})
    assert done.code == 0
    assert len(done.out.splitlines()) == 5
    assert max(map(len, done.out.splitlines())) <= 80
