"""Who may have programs run on an open dashboard: our own user, and who signs in. Over real connections."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
import uvicorn

from mcp_optimizer.callers.keys import Wanted
from mcp_optimizer.callers.known_keys import opened_keys
from mcp_optimizer.callers.making import make_key
from mcp_optimizer.domain.principal import Role
from mcp_optimizer.runtime.http_server import HttpServer
from tests.conftest import PLAIN_SERVER, plain_server
from tests.unit.dashboard.tending import Tended, tended
from tests.unit.dashboard.visiting import OWN_PAGE

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose connection it is"),
]

STRANGER = 12_345
SERVERS = {"time": plain_server("time")}
PROGRAM = {"name": "new", "command": sys.executable, "args": f"{PLAIN_SERVER}\nnew"}
KEY = {"name": "mine", "role": "manage"}
as_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user")


@dataclass(frozen=True)
class Reached:
    """A dashboard on a real port, a browser of our own user, and what another user sends."""

    world: Tended
    port: int
    own: httpx2.AsyncClient

    async def by_stranger(self, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> str:
        """What another user of this machine is answered."""
        body = urlencode(fields or {})
        head = {"Host": f"127.0.0.1:{self.port}", **OWN_PAGE, "Connection": "close", **headers}
        head |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))}
        lines = [f"{'GET' if fields is None else 'POST'} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items())]
        line = f"exec 3<>/dev/tcp/127.0.0.1/{self.port}; cat >&3; cat <&3"
        process = await asyncio.create_subprocess_exec(
            "/bin/bash", "-c", line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            user=STRANGER, group=STRANGER, extra_groups=[],
        )  # fmt: skip
        said, _ = await process.communicate("\r\n".join([*lines, "", body]).encode())
        return said.decode()


@asynccontextmanager
async def reached(folder: Path, **options: Any) -> AsyncIterator[Reached]:
    async with tended(folder, SERVERS, **options) as world:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = HttpServer(uvicorn.Config(world.app, ws="none", lifespan="off", log_level="critical"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=OWN_PAGE) as own:
                yield Reached(world, port, own)
        finally:
            server.finish()
            server.break_off()
            await serving


async def test_our_own_user_adds_a_program_without_a_key(tmp_path: Path) -> None:
    async with reached(tmp_path) as here:
        assert 'name="command"' in (await here.own.get("/servers")).text
        assert (await here.own.post("/servers", data=PROGRAM)).status_code == 303
        assert "new" in here.world.entries
        assert (await here.own.post("/callers/new", data=KEY)).status_code == 200


@as_root
async def test_another_user_adds_no_program_and_makes_no_key_that_could(tmp_path: Path) -> None:
    async with reached(tmp_path) as here:
        before = here.world.text
        page = await here.by_stranger("/servers")
        assert 'name="command"' not in page
        assert "key create --name NAME --role manage" in page
        for path, fields in {"/servers": PROGRAM, "/callers/new": KEY}.items():
            answer = await here.by_stranger(path, fields)
            assert answer.startswith("HTTP/1.1 403")
            assert "open to every user of this machine" in answer
        assert here.world.text == before
        # What runs nothing stays as it was.
        assert "303" in (await here.by_stranger("/servers/time/disable", {})).splitlines()[0]


@as_root
async def test_another_user_cannot_borrow_a_connection_of_ours(tmp_path: Path) -> None:
    async with reached(tmp_path) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        address = "127.0.0.1:{}".format(writer.get_extra_info("sockname")[1])
        for name in ("X-Forwarded-For", "x-forwarded-for"):
            answer = await here.by_stranger("/servers", PROGRAM, **{name: address})
            assert answer.startswith("HTTP/1.1 403")
        writer.close()
        assert await reader.read() == b""
        assert "new" not in here.world.entries


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
async def test_what_a_proxy_passes_on_proves_nothing(tmp_path: Path, name: str) -> None:
    async with reached(tmp_path) as here:
        answer = await here.own.post("/servers", data=PROGRAM, headers={name: "127.0.0.1"})
        assert answer.status_code == 403
        assert "new" not in here.world.entries


async def test_who_is_not_known_signs_in_and_then_adds_a_program(tmp_path: Path) -> None:
    async with opened_keys(tmp_path / "catalog.db") as stored:
        keys = {role: (await make_key(stored, Wanted(f"{role}-key", role=role)))[1] for role in Role}
    async with tended(tmp_path, SERVERS) as world:
        assert (await world.post("/servers", PROGRAM)).status_code == 403
        assert 'action="/login"' in await world.page("/login")
        for role, status in ((Role.SEE, 403), (Role.MANAGE, 303)):
            assert (await world.post("/login", {"token": keys[role]})).status_code == 303
            assert (await world.post("/servers", PROGRAM)).status_code == status
        assert "new" in world.entries
        assert (await world.client.get("/login")).status_code == 303


async def test_who_is_not_known_is_bound_by_the_rules_for_anyone(tmp_path: Path) -> None:
    rules = [{"effect": "deny", "caller": "anyone"}]
    entered = {"as": "json", "arguments": '{"value": "x"}'}
    async with reached(tmp_path, rules=rules) as here:
        assert (await here.own.post("/tools/time/echo", data=entered)).status_code == 200
        assert (await here.own.post("/tools/time/echo", data=entered, headers={"Via": "a"})).status_code == 502
