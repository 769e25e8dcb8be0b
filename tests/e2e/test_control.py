"""Commands while a gateway is running: they answer through it, exactly as without it, and start no server."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.app.control.gateway_client import running_gateways
from mcp_optimizer.app.control.wire import identity, sockets
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.runtime.sharing.places import made_folder
from tests.conftest import PLAIN_SERVER, WriteServers
from tests.e2e.running import Finished, command, gateway_at, over_stdio, until_found
from tests.waiting import until

QUESTIONS = [
    ("find", "draw a picture"),
    ("find", "draw a picture", "--json", "--limit", "2"),
    ("tools",),
    ("tools", "--json"),
    ("tools", "--server", "one"),
    ("tools", "--server", "nobody"),
    ("show", "picture"),
    ("show", "picture", "--json"),
    ("show", "pictur"),
    ("call", "facts"),
    ("call", "fail"),
    ("call", "nothing_like_it"),
    ("read", "r0000000000"),
]
ATTEMPTS = 3


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    return tmp_path / "starts"


@pytest.fixture
def config(write_servers: WriteServers, starts: Path) -> Path:
    """One server, which notes each of its starts."""
    note = f"open({str(starts)!r}, 'a').write('x')"
    server = f"sys.argv = ['plain', 'one']; runpy.run_path({str(PLAIN_SERVER)!r}, run_name='__main__')"
    script = f"import runpy, sys; {note}; {server}"
    return write_servers({"one": {"command": sys.executable, "args": ["-c", script]}})


def started(starts: Path) -> int:
    return len(starts.read_text()) if starts.exists() else 0


async def until_reached(config: Path, **options: Any) -> None:
    settings = load_settings({"config": config, **options})
    await until(lambda: any(gateway.hello.is_ready for gateway in running_gateways(settings)), timeout=60)


async def asked(*arguments: object, starts: Path | None = None, cold: bool = False) -> Finished:
    """The outcome of a command that asks a running gateway, and fails or starts a server if none answers.

    A gateway has a second to answer, which a busy machine may take from it; so the command is given again.
    """
    for _ in range(ATTEMPTS):
        before = started(starts) if starts else 0
        done = await command(*arguments, cold=cold)
        is_answered = not any(words in done.err for words in ("No gateway is running", ") did not answer"))
        if is_answered and (not starts or started(starts) == before):
            return done
    pytest.fail(f"no gateway was asked: {done}")


async def listed_gateways(count: int, *options: object, cold: bool = False) -> list[dict[str, Any]]:
    """Those that `status` lists: once they are so many, at most the third time."""
    found: list[dict[str, Any]] = []
    for _ in range(ATTEMPTS):
        found = (await asked("status", *options, "--json", cold=cold)).json["gateways"]
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
async def test_a_running_gateway_answers_as_a_fresh_one_does(
    config: Path, starts: Path, question: tuple[str, ...]
) -> None:
    fresh = await command(*question, "--config", config)
    async with gateway_at(config):
        await until_reached(config)
        done = await asked(*question, "--config", config, starts=starts)
        assert (done.code, done.out) == (fresh.code, fresh.out)


async def test_a_gateway_on_stdio_answers_commands(config: Path, starts: Path) -> None:
    async with over_stdio(config) as client:
        await until_found(client, "picture", "picture")
        await until_reached(config)
        found = await asked("find", "draw a picture", "--config", config, "--json", starts=starts)
        assert found.json["tools"][0]["name"] == "picture"
        assert (await asked("servers", "--config", config, starts=starts)).code == 0


@pytest.mark.parametrize("option", [("--fresh",), ("--database", "none")], ids=" ".join)
async def test_what_would_change_the_answer_starts_servers(config: Path, starts: Path, option: tuple[str, ...]) -> None:
    async with gateway_at(config):
        await until_reached(config)
        before = started(starts)
        assert (await command("call", "facts", "--config", config, *option)).code == 0
        assert started(starts) == before + 1


async def test_without_a_gateway_a_dead_ones_socket_is_removed(config: Path, starts: Path) -> None:
    settings = load_settings({"config": config})
    folder = made_folder(os.environ)
    assert folder is not None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / f"{identity(settings)}-1.sock"))
    assert (await command("tools", "--config", config)).code == 0
    assert started(starts) == 1
    assert sockets(identity(settings), os.environ) == []


async def test_a_folder_that_others_can_enter_is_not_asked(config: Path, starts: Path) -> None:
    # Without a database, a command that asks no gateway has to start the servers.
    async with gateway_at(config, "--database", "none"):
        await until_reached(config, database="none")
        [path] = sockets(identity(load_settings({"config": config, "database": "none"})), os.environ)
        path.parent.chmod(0o755)
        before = started(starts)
        assert (await command("tools", "--config", config, "--database", "none")).code == 0
        assert started(starts) == before + 1


async def test_something_else_that_listens_there_is_not_believed(config: Path, starts: Path) -> None:
    settings = load_settings({"config": config})
    folder = made_folder(os.environ)
    assert folder is not None
    with _says(folder / f"{identity(settings)}-1.sock"):
        assert (await command("tools", "--config", config)).code == 0
    assert started(starts) == 1


@contextmanager
def _says(path: Path) -> Iterator[None]:
    """A socket that accepts and says nothing."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        yield


async def test_status_lists_each_gateway_until_it_ends(config: Path) -> None:
    async with gateway_at(config) as address:
        async with over_stdio(config) as client:
            await until_found(client, "picture", "picture")
            await until_reached(config)
            status = await listed_gateways(2, "--config", config, cold=True)
            assert {one["address"] for one in status} == {address, "stdio"}
            assert {one["server_file"] for one in status} == {str(config)}
        only = await asked("status", "--config", config)
        assert (only.code, len(only.out.splitlines())) == (0, 1)
    none = await command("status", "--config", config)
    assert none.code == 1
    assert "No gateway is running" in none.err


async def test_calls_of_commands_are_audited_and_no_use_of_the_gateway(config: Path) -> None:
    async with gateway_at(config):
        await until_reached(config)
        await command("find", "draw a picture", "--config", config)
        await command("call", "facts", "--config", config)
    audit = [json.loads(line) for line in (await command("audit", "--config", config, "--json")).out.splitlines()]
    assert [(entry["tool"], entry["client"]) for entry in audit] == [("facts", "mcp-optimizer command line")]
    report = (await command("report", "--config", config, "--json")).json
    assert report["usage"]["events"] == 0
