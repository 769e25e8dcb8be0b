"""The command line as people and programs use it: output, --json, exit codes, and errors worth reading."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from mcp import Client

from mcp_optimizer import FindToolResponse, __version__
from mcp_optimizer.cli.setup import STARTER
from mcp_optimizer.config.serverfile.parser import parse_server_file
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import command, gateway_at, http_gateway, until_found


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


async def test_find_prints_a_find_tool_response(config: Path) -> None:
    done = await command("find", "draw a picture", "--config", config, "--json", cold=True)
    assert done.code == 0
    found = FindToolResponse.model_validate(done.json)
    assert found.tools[0].name == "picture"
    assert found.token_metrics.tokens_saved > 0


async def test_find_for_people_shows_tools_and_savings(config: Path) -> None:
    done = await command("find", "draw a picture", "--config", config)
    assert "picture" in done.out
    assert "saved" in done.out


async def test_call_prints_the_result_as_on_the_wire(config: Path) -> None:
    done = await command("call", "facts", "{}", "--config", config, "--json", cold=True)
    assert done.code == 0
    assert done.json["structuredContent"] == {"rows": [{"id": 1}], "total": 1}
    assert done.json["futureField"] == [1]


async def test_a_call_whose_tool_fails_exits_with_1(config: Path) -> None:
    done = await command("call", "fail", "--config", config)
    assert (done.code, done.out.strip()) == (1, "it did not work")


async def test_tools_and_servers_print_json(config: Path) -> None:
    listed = (await command("tools", "--config", config, "--json", cold=True)).json
    assert len(listed["tools"]) == 9
    assert listed["total_tokens"] == sum(tool["tokens"] for tool in listed["tools"])
    [server] = (await command("servers", "--config", config, "--json", cold=True)).json["servers"]
    assert (server["status"], server["tools"], server["tokens"]) == ("starts when needed", 9, listed["total_tokens"])
    assert server["sent_tokens"] == sum(tool["sent_tokens"] for tool in listed["tools"]) < server["tokens"]


async def test_demo_shows_what_it_saves_and_calls_a_tool(tmp_path: Path) -> None:
    done = await command("demo", cwd=tmp_path, cold=True)
    assert done.code == 0
    assert "Without mcp-optimizer, every prompt carries all" in done.out
    assert "secureDatabaseQuery" in done.out
    assert "columnNames" in done.out
    assert "With your own servers" in done.out


async def test_a_demo_whose_servers_do_not_start_in_time_says_so_and_shows_nothing(tmp_path: Path) -> None:
    done = await command("demo", "--wait", "0", cwd=tmp_path, cold=True)
    assert (done.code, done.out) == (1, "")
    assert "have not started within 0 s: kanban (starting), sql (starting), web (starting)." in done.err
    assert "demo --wait 60 --start-timeout 240" in done.err


async def test_init_writes_a_starter_file_once_where_every_command_finds_it(tmp_path: Path) -> None:
    done = await command("init", cwd=tmp_path, cold=True)
    own = tmp_path / "xdg_config_home" / "mcp-optimizer" / "mcp.json"
    assert (done.code, f"Wrote {own}." in done.out, "--config" in done.out) == (0, True, False)
    assert not (tmp_path / "mcp.json").exists()
    specs = parse_server_file(own.read_text(), own, {"HOME": "/home/me"})
    assert [(spec.name, spec.disabled, spec.problem) for spec in specs] == [
        ("filesystem", False, ""),
        ("github", True, ""),
        ("remote", True, ""),
    ]
    again = await command("init", cwd=tmp_path)
    assert (again.code, own.read_text()) == (2, STARTER)
    assert "already exists" in again.err
    named = await command("init", "mine.json", cwd=tmp_path)
    assert ((tmp_path / "mine.json").read_text(), "doctor --config mine.json" in named.out) == (STARTER, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (["find", "x", "--config", "absent.json"], {}, 2, "No server file at absent.json"),
        (["find", "x", "--find-limt", "3"], {}, 2, "--find-limit"),
        (["find", "x", "--demo", "--find-limit", "0"], {}, 2, "Bad value 0 for 'find_limit' on the command line"),
        (
            ["serve", "--demo", "--profile", "huge"],
            {},
            2,
            "'huge' is not",
        ),
        (["find", "x", "--demo"], {"MCP_OPTIMIZER_FIND_LIMIT": "many"}, 2, "in the environment (MCP_OPTIMIZER_*)"),
        (["find", "x", "--demo"], {"MCP_OPTIMIZER_FINDLIMIT": "3"}, 2, "Did you mean 'find_limit'?"),
        (["find", "x", "--demo", "--config", "y.json"], {}, 2, "either config or demo"),
        (["serve", "--demo", "--http", "nowhere"], {}, 2, "is not HOST:PORT"),
        (["serve", "--demo", "--http", "0.0.0.0:8000"], {}, 2, "--allowed-hosts"),
        (["nonsense"], {}, 2, "nonsense"),
    ],
)
async def test_wrong_use_exits_with_2_and_says_what_was_wrong(
    arguments: list[str], environment: dict[str, str], code: int, message: str, tmp_path: Path
) -> None:
    done = await command(*arguments, cwd=tmp_path, env=environment)
    assert done.code == code
    assert message in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err


async def test_a_broken_server_file_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{\n  "mcpServers": {\n    "a": {"command": "x" "args": []}\n  }\n}')
    done = await command("tools", "--config", path)
    assert done.code == 2
    assert "line 3" in done.err


async def test_an_unknown_tool_exits_with_1_and_names_the_nearest(config: Path) -> None:
    done = await command("call", "pictur", "{}", "--config", config)
    assert done.code == 1
    assert done.err.strip().endswith("Nearest: picture. Search with `mcp-optimizer find`.")


@pytest.mark.promise("missing-servers-named")
async def test_a_server_that_is_missing_is_named_once(write_servers: WriteServers) -> None:
    config = write_servers({"gone": {"command": "no-such-command-here"}})
    done = await command("tools", "--config", config)
    assert done.code == 0
    assert done.err.count("gone") == 1
    assert "without server gone (failed): the command 'no-such-command-here' was not found" in done.err
    assert done.err.strip().endswith("Run `mcp-optimizer doctor` to see how to fix that.")
    assert "gone" not in (await command("servers", "--config", config)).err


async def test_a_server_that_is_missing_is_not_named_where_another_one_answers(write_servers: WriteServers) -> None:
    both = write_servers({"one": plain_server("one"), "gone": {"command": "no-such-command-here"}})
    assert "gone" not in (await command("call", "facts", "{}", "--config", both)).err
    assert "gone" not in (await command("tools", "one", "--config", both)).err
    refused = (await command("call", "refuse", "{}", "--config", both)).err
    assert "I will not" in refused
    assert "gone" not in refused
    assert "without server gone" in (await command("call", "no_such_tool", "--config", both)).err


async def test_wrong_arguments_name_the_command_that_explains_them() -> None:
    done = await command("call", "create_card", '{"title": "x"}', "--demo")
    assert done.code == 1
    assert '"column_id" is a required property. `mcp-optimizer show create_card` explains' in done.err


async def test_the_version_needs_no_command() -> None:
    done = await command("--version")
    assert (done.code, done.out.strip()) == (0, f"mcp-optimizer {__version__}")


async def test_a_settings_file_is_read_and_beaten_by_a_flag(config: Path, tmp_path: Path) -> None:
    settings = tmp_path / "mine.toml"
    settings.write_text(f"config = {json.dumps(str(config))}\nfind_limit = 2\n")
    query = "say wait end draw structured answer"
    from_file = await command("find", query, "--settings", settings, "--json")
    assert len(from_file.json["tools"]) == 2
    beaten = await command("find", query, "--settings", settings, "--find-limit", 3, "--json")
    assert len(beaten.json["tools"]) == 3


async def test_a_taken_port_is_an_error_that_names_it(config: Path) -> None:
    async with gateway_at(config) as address:
        place = address.removeprefix("http://").removesuffix("/mcp")
        done = await command("serve", "--config", config, "--http", place)
    assert done.code == 2
    assert f"Cannot listen on {place}" in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_gateway_and_its_children(
    write_servers: WriteServers, tmp_path: Path, number: signal.Signals
) -> None:
    pid_file = tmp_path / "pid"
    config = write_servers({"one": plain_server("one", "--pid-file", pid_file)})
    async with http_gateway(config) as (address, gateway):
        async with Client(address) as client:
            await until_found(client, "draw a picture", "picture")
        gateway.send_signal(number)
        assert await asyncio.wait_for(gateway.wait(), 10) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_a_token_on_the_command_line_is_said_to_be_visible_to_every_user(tmp_path: Path) -> None:
    token, variable = "a-token-of-enough-characters", "MCP_OPTIMIZER_DASHBOARD_TOKEN"
    wrong = ("serve", "--http", "nowhere")
    given = await command(*wrong, "--dashboard-token", token, cwd=tmp_path)
    assert f"Better: the variable {variable}, or dashboard_token in the settings file." in given.err
    assert token not in given.err
    assert variable not in (await command(*wrong, cwd=tmp_path, env={variable: token})).err


async def test_find_says_to_people_where_only_the_nearest_tools_are_shown(config: Path) -> None:
    given = ("--config", config, "--encoder", "bundled")
    alone = await command("find", "order a pizza with mushrooms", *given)
    assert alone.out.startswith("No tool fits well; these are the nearest.")
    several = await command("find", "draw a picture; order a pizza with mushrooms", *given)
    assert "No tool fits well: order a pizza with mushrooms; its nearest are shown." in several.out
    assert "No tool fits well" not in (await command("find", "draw a picture", *given)).out
