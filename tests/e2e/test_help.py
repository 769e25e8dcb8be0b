"""The help shows what belongs to a command, and shells complete names without starting anything."""

from __future__ import annotations

import os
from pathlib import Path

import typer.main

from mcp_optimizer.cli import program
from mcp_optimizer.cli.command_options import OwnOptionsFirst
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import Finished, command, gateway_at
from tests.e2e.test_control import until_reached

WIDE = {"COLUMNS": "200", "TERM": "dumb"}


async def test_the_help_of_a_command_has_its_own_options_and_one_line_for_the_others() -> None:
    shown = (await command("find", "--help", env=WIDE, cold=True)).out
    assert "--keywords" in shown
    assert "--help-all" in shown
    assert "--log-level" not in shown
    assert len(shown.splitlines()) < 30


async def test_all_options_are_shown_with_their_choices_and_defaults() -> None:
    shown = " ".join((await command("find", "--help-all", env=WIDE)).out.split())
    assert "signature|schema|full" in shown
    assert "(default: 0)" in shown


async def test_the_own_options_of_serve_are_those_of_serving() -> None:
    shown = (await command("serve", "--help", env=WIDE)).out
    assert "--http" in shown
    assert "--find-limit" not in shown


async def test_commands_are_grouped() -> None:
    shown = (await command("--help", env=WIDE)).out
    assert [title for title in ("Start here", "Look", "Servers", "Share") if f"─ {title} ─" not in shown] == []


def test_every_command_collapses_the_options_that_all_share() -> None:
    groups, others = [typer.main.get_command(program())], []
    while groups:
        for one in getattr(groups.pop(), "commands", {}).values():
            if hasattr(one, "commands"):
                groups.append(one)
            elif not isinstance(one, OwnOptionsFirst):
                others.append(one.name)
    assert others == []


async def completed(*words: object) -> Finished:
    """What a shell is offered after these words."""
    line = " ".join(["mcp-optimizer", *map(str, words)])
    # The variable is named after the program, here `python -m mcp_optimizer`.
    asked = {"_PYTHON _M MCP_OPTIMIZER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    return await command(env=asked)


async def test_servers_are_completed_from_the_server_file(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one"), "other": plain_server("o"), "$(touch x)": plain_server("x")})
    done = await completed("tools", "--config", config, "--server", "o")
    assert done.out.split() == ["one", "other"]
    everything = await completed("tools", "--config", config, "--server", "''")
    assert "touch" not in everything.out


async def test_tools_are_completed_from_a_running_gateway(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    assert (await completed("show", "--config", config, "pic")).out.split() == []
    async with gateway_at(config):
        await until_reached(config)
        assert (await completed("show", "--config", config, "pic")).out.split() == ["picture"]


async def test_completion_fails_silently(tmp_path: Path) -> None:
    for config in (tmp_path / "absent.json", tmp_path):
        done = await completed("tools", "--config", config, "--server", "o")
        assert (done.out.strip(), done.err) == ("", "")
    assert os.listdir(os.environ["XDG_RUNTIME_DIR"]) == []
