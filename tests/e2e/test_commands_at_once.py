"""Commands without a gateway: servers that were listed before stay at rest, and one that just failed is not retried."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PLAIN_SERVER, WriteServers
from tests.e2e.running import Finished, command, gateway_at
from tests.e2e.test_control import until_reached

QUESTIONS = [
    ("find", "draw a picture", "--encoder", "none"),
    ("tools",),
    ("servers",),
    ("show", "one__picture"),
    ("report",),
    ("policy", "test", "one__picture"),
    ("trust", "list"),
    ("doctor",),
]

NOT_LOADED = {"mcp.server.lowlevel.server", "mcp_types._types", "sqlalchemy.orm", "starlette", "uvicorn"}
"""What no question needs: it belongs to serving, or is beside what is used."""


async def imported(*command_line: str) -> set[str]:
    """The modules that a command imports, and the packages that they are in."""
    program = (sys.executable, "-X", "importtime", "-m", "mcp_optimizer", *command_line)
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.DEVNULL, stderr=-1)
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()[-2_000:]
    return set(re.findall(r"^import time:.*\| +(\S+)$", said.decode().replace(os.linesep, "\n"), re.MULTILINE))


def _noting(starts: Path, program: str) -> dict[str, Any]:
    """An entry that notes each of its starts."""
    note = f"open({str(starts)!r}, 'a').write('x')"
    return {"command": sys.executable, "args": ["-c", f"import runpy, sys; {note}; {program}"]}


def _plain(name: str) -> str:
    return f"sys.argv = ['plain', {name!r}]; runpy.run_path({str(PLAIN_SERVER)!r}, run_name='__main__')"


class World:
    """Two servers that work."""

    def __init__(self, write_servers: WriteServers, folder: Path) -> None:
        self._folder = folder
        self.config = write_servers({name: _noting(folder / name, _plain(name)) for name in ("one", "two")})

    def starts(self, name: str) -> int:
        noted = self._folder / name
        return len(noted.read_text()) if noted.exists() else 0

    async def asked(self, *arguments: str) -> Finished:
        return await command(*arguments, "--config", self.config)


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path) -> World:
    return World(write_servers, tmp_path)


async def test_no_question_starts_a_server_that_is_known(world: World) -> None:
    first = await world.asked("tools", "--json")
    for question in QUESTIONS:
        assert (done := await world.asked(*question)).code == 0, (question, done.err)
    assert (await world.asked("tools", "--json")).out == first.out
    assert (world.starts("one"), world.starts("two")) == (1, 1)


@pytest.mark.slow
async def test_no_question_loads_what_it_does_not_need(world: World) -> None:
    await world.asked("tools")
    for question in QUESTIONS:
        assert await imported(*question, "--config", str(world.config)) & NOT_LOADED == set(), question


async def test_a_report_keeps_the_definitions_that_it_compressed_for_the_next_one(world: World, tmp_path: Path) -> None:
    database = tmp_path / "kept.db"

    async def reported() -> tuple[str, list[tuple[str, float]]]:
        done = await world.asked("report", "--database", str(database))
        with closing(sqlite3.connect(database)) as connection:
            return done.out, connection.execute("SELECT definition_hash, rowid FROM definition_form").fetchall()

    first, made = await reported()
    assert made
    assert await reported() == (first, made)


async def test_doctor_embeds_what_it_starts_so_that_no_search_has_to(world: World, tmp_path: Path) -> None:
    database = tmp_path / "embedded.db"
    done = await world.asked("doctor", "--database", str(database), "--encoder", "static")
    assert done.code == 0
    with closing(sqlite3.connect(database)) as connection:
        ((tools,),) = connection.execute("SELECT count(DISTINCT definition_hash) FROM tool").fetchall()
        ((vectors,),) = connection.execute("SELECT count(*) FROM definition_vector").fetchall()
    # The tools of both servers are the same, and each is embedded with the name of its own.
    assert vectors >= tools > 0


async def test_a_call_starts_the_one_server_that_it_needs(world: World) -> None:
    await world.asked("tools")
    assert (await world.asked("call", "one__picture")).code == 0
    assert (world.starts("one"), world.starts("two")) == (2, 1)


async def test_fresh_starts_every_server_and_doctor_too(world: World) -> None:
    await world.asked("tools")
    for times, question in enumerate((("tools",), ("doctor",), ("report",)), 2):
        assert (await world.asked(*question, "--fresh")).code == 0
        assert (world.starts("one"), world.starts("two")) == (times, times)


async def test_doctor_says_when_a_server_that_it_did_not_start_worked(world: World) -> None:
    await world.asked("tools")
    told = (await world.asked("doctor", "--json")).json
    assert told["healthy"]
    assert {row["status"] for row in told["servers"]} == {"starts when needed"}
    assert all(row["worked_at"] for row in told["servers"])
    assert "ago, MCP" in (await world.asked("doctor")).out


async def test_a_server_that_failed_moments_ago_is_named_and_tried_again_only_by_doctor(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    config = write_servers({"broken": _noting(starts, "sys.exit('no token')"), "one": _noting(tmp_path / "one", "")})
    await command("tools", "--config", config)
    before = len(starts.read_text())
    done = await command("tools", "--config", config)
    assert "without server broken (failed)" in done.err
    assert "no token" in done.err
    assert "ago)" in done.err
    assert len(starts.read_text()) == before
    assert (await command("doctor", "--config", config)).code == 1
    assert len(starts.read_text()) > before


async def test_rules_are_explained_by_the_gateway_that_runs(world: World) -> None:
    async with gateway_at(world.config):
        await until_reached(world.config)
        before = world.starts("one")
        done = await world.asked("policy", "test", "one__picture", "--json")
        assert (done.code, done.json["server"], done.json["effect"]) == (0, "one", "allow")
        assert world.starts("one") == before
