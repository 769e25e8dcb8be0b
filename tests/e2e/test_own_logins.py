"""Each caller of a gateway over HTTP acts at a server as itself, with a login, a session and a catalog of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.domain.caller import Risk, Role
from tests.e2e.logging_in import given
from tests.e2e.made_keys import made_key
from tests.e2e.running import WARM, command
from tests.servers.login_world import LoginWorld, login_world
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ENTRY = {"auth": {"type": "oauth", "principal": "caller"}}
OPTIONS = ("--encoder", "none", "--cache-seconds", "600", "--require-auth", "--log-level", "debug")
FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=60, server="tests.servers.personal") as world:
        yield world


class Gateway:
    """A gateway that takes only keys; its log is a file."""

    def __init__(self, address: str, keys: dict[str, str], log: Path, options: list[object]) -> None:
        self.address = address
        self.keys = keys
        self.log = log
        self.options = options

    @property
    def origin(self) -> str:
        return self.address.removesuffix("/mcp")


@asynccontextmanager
async def gateway(world: LoginWorld, folder: Path, *more: object, **entry: Any) -> AsyncIterator[Gateway]:
    auth = {**ENTRY["auth"], **entry}
    options = given({"desk": {"type": "http", "url": world.server_url, "auth": auth}}, folder)
    os.environ["MCP_OPTIMIZER_DATABASE"] = str(folder / "catalog.db")
    try:
        keys = {name: await made_key(name, Risk.DESTRUCTIVE) for name in ("ada", "bob", "cyd")}
        keys["boss"] = await made_key("boss", role=Role.MANAGE)
        for name in ("laptop", "phone"):
            keys[name] = await made_key(name, Risk.DESTRUCTIVE, holder="eve@example.com")
    finally:
        del os.environ["MCP_OPTIMIZER_DATABASE"]
    log = folder / "gateway.log"
    arguments = [*WARM, "serve", "--http", "127.0.0.1:0", *map(str, options), *map(str, more), *OPTIONS]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*arguments, stdout=out, stderr=out)
    try:
        listening = re.compile(r"http://\S+/mcp")
        await until(lambda: listening.search(log.read_text()), "the gateway listens", 60)
        found = listening.search(log.read_text())
        assert found is not None
        made = Gateway(found.group(), keys, log, options)
        async with httpx2.AsyncClient(base_url=made.origin, trust_env=False, timeout=60) as http:
            key = {"X-API-Key": keys["boss"]}

            async def knows_keys() -> bool:
                return (await http.get("/logins", headers=key)).status_code == 200

            await until(knows_keys, "the database is open", 60)
        yield made
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def log_in(world: LoginWorld, gateway: Gateway, who: str, user: str | None = None) -> None:
    """On the caller's own page, as a program that has the caller's key; at the issuer as `user`."""
    await asyncio.to_thread(world.control, user=user or who)
    headers = {"Authorization": f"Bearer {gateway.keys[who]}", **FORM}
    async with httpx2.AsyncClient(base_url=gateway.origin, headers=headers, trust_env=False, timeout=60) as browser:
        page = await browser.post("/mine/desk")
        assert page.status_code == 200, page.text
        [address] = re.findall(r'href="(http://localhost:\d+/authorize[^"]*)"', page.text)
        redirect = await asyncio.to_thread(world.browser, address.replace("&amp;", "&"))
        done = await browser.get(redirect)
        assert "You are logged in to desk" in done.text, done.text


class Seat:
    """A client of one caller, and everything that has reached it."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.client: Client
        self.seen: list[str] = []

    async def hear(self, message: Any) -> None:
        self.seen.append(str(message))

    async def find(self, words: str) -> str:
        found = await self.client.call_tool("find_tool", {"tool_description": words})
        self.seen.append(found.model_dump_json())
        return self.seen[-1]

    async def call(self, tool: str) -> str:
        result = await self.client.call_tool("call_tool", {"tool_name": tool, "parameters": {}})
        self.seen.append(result.model_dump_json())
        assert isinstance(result.content[0], types.TextContent)
        return result.content[0].text

    async def everything(self) -> None:
        """Every method that shows something of a server."""
        session = self.client.session
        await self.find(f"read the diary of {self.who}")
        await self.find("write a page into ada-secret-book or bob-secret-book")
        for tool in ("whoami", "whoami", "write_page", "touch_note", f"{self.who}_diary", "ada_diary", "bob_diary"):
            await self.call(tool)
        listed = (
            await session.list_tools(),
            await session.list_prompts(),
            await session.list_resources(),
            await session.list_resource_templates(),
            await session.get_prompt("greet"),
            await session.read_resource("note://mine"),
        )
        self.seen += [one.model_dump_json() for one in listed]
        assert f"{self.who}-secret-prompt" in self.seen[-5]
        assert f"note://{self.who}-secret" in self.seen[-4]


@asynccontextmanager
async def seats(gateway: Gateway, *who: str) -> AsyncIterator[dict[str, Seat]]:
    """A client for each of `ada legacy`, `bob auto` and so on."""
    async with AsyncExitStack() as stack:
        made: dict[str, Seat] = {}
        for one in who:
            name, era = one.split()
            headers = {"Authorization": f"Bearer {gateway.keys[name]}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False))
            made[one] = seat = Seat(name)
            transport = streamable_http_client(gateway.address, http_client=http)
            info = types.Implementation(name="twin", version="1")
            client = Client(transport, mode=era, client_info=info, message_handler=seat.hear, cache=None)
            seat.client = await stack.enter_async_context(client)
        yield made


def leaked(seen: list[str], other: str) -> list[str]:
    return [text for text in seen if f"{other}-secret" in text and f"read the diary of {other}" not in text]


@pytest.mark.promise("callers-share-nothing")
@pytest.mark.parametrize("mode", ["search", "transparent"])
async def test_nothing_that_a_server_has_for_one_caller_reaches_another(
    world: LoginWorld, tmp_path: Path, mode: str
) -> None:
    before = json.loads(world.http.get(world.server_url.replace("/mcp", "/control")).text)
    async with gateway(world, tmp_path, "--mode", mode) as made:
        await log_in(world, made, "ada")
        await log_in(world, made, "bob")
        every = ("ada legacy", "bob legacy", "ada auto", "bob auto")
        async with seats(made, *every) as found:
            await found["ada legacy"].client.session.subscribe_resource("note://mine")
            await found["bob legacy"].client.session.subscribe_resource("note://mine")
            if mode == "search":
                await asyncio.gather(*(seat.everything() for seat in found.values()))
                assert all("ada-secret touch_note" in " ".join(found[one].seen) for one in every if "ada" in one)
                await until(lambda: any("resources/updated" in text for text in found["ada legacy"].seen))
            else:
                for seat in found.values():
                    listed = await seat.client.list_tools()
                    seat.seen.append(listed.model_dump_json())
                    assert f"{seat.who}_diary" in {tool.name for tool in listed.tools}
                    result = await seat.client.call_tool("whoami", {})
                    seat.seen.append(result.model_dump_json())
            for seat in found.values():
                other = "bob" if seat.who == "ada" else "ada"
                # What a caller asked for itself is in the text of its own search.
                said = [text for text in seat.seen if "write a page into" not in text]
                assert leaked(said, other) == [], f"{seat.who} was sent something of {other}"
    after = json.loads(world.http.get(world.server_url.replace("/mcp", "/control")).text)
    assert after["mixed"] == before["mixed"] == 0
    assert "ada-secret" not in made.log.read_text()
    assert "bob-secret" not in made.log.read_text()
    assert [one for one in world.secrets() if one in made.log.read_text()] == []


async def test_a_change_at_one_caller_s_server_is_told_to_that_caller_alone(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path, "--mode", "transparent") as made:
        await log_in(world, made, "ada")
        await log_in(world, made, "bob")
        async with seats(made, "ada legacy", "bob legacy") as found:
            for seat in found.values():
                await seat.client.list_tools()
                await seat.client.session.subscribe_resource("note://mine")
            for seat in found.values():
                seat.seen.clear()
            await found["ada legacy"].client.call_tool("touch_note", {})
            await until(lambda: any("resources/updated" in text for text in found["ada legacy"].seen))
            assert not any("resources/updated" in text for text in found["bob legacy"].seen)


async def test_without_a_login_a_caller_is_told_where_to_log_in_and_finds_no_tools(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with gateway(world, tmp_path) as made:
        await log_in(world, made, "ada")
        async with seats(made, "ada auto", "cyd auto") as found:
            assert "ada-secret whoami" in await found["ada auto"].call("whoami")
            said = await found["cyd auto"].find("who calls")
            assert "login needed: log in on the page /mine" in said
            assert "whoami" not in said
            await log_in(world, made, "cyd")
            assert "cyd-secret whoami" in await found["cyd auto"].call("whoami")
            assert "cyd_diary" in await found["cyd auto"].find("read the diary")
        done = await command("auth", "status", "--caller", "key:*", "--json", *made.options)
        states = {one["caller"]: one["state"] for one in done.json["logins"]}
        assert states == {"key:ada": "logged in", "key:cyd": "logged in"}


async def test_who_is_logged_out_reaches_nothing_any_more(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as made:
        await log_in(world, made, "ada")
        await log_in(world, made, "bob")
        async with seats(made, "ada auto", "bob auto") as found:
            assert "ada-secret" in await found["ada auto"].call("whoami")
            assert "bob-secret" in await found["bob auto"].call("touch_note")
            headers = {"Authorization": f"Bearer {made.keys['ada']}", **FORM}
            async with httpx2.AsyncClient(
                base_url=made.origin, headers=headers, trust_env=False, timeout=60
            ) as browser:
                assert (await browser.post("/mine/desk/out")).status_code == 303
            assert "ada-secret" not in await found["ada auto"].call("touch_note")
            assert "login needed" in await found["ada auto"].find("who calls")
            assert "bob-secret" in await found["bob auto"].call("touch_note")


async def test_a_login_survives_the_rotation_of_its_key(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as made:
        await log_in(world, made, "ada")
        rotated = await command("key", "rotate", "ada", "--overlap", "1h", "--json", *made.options)
        made.keys["new"] = rotated.json["key"]
        async with seats(made, "ada auto", "new auto") as found:
            for seat in found.values():
                assert "ada-secret whoami" in await seat.call("whoami")
        ended = await command("key", "rotate", "ada", "--overlap", "0", "--json", *made.options)
        made.keys["newest"] = ended.json["key"]
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:

            async def is_refused() -> bool:
                asked = await http.post(made.address, headers={"Authorization": f"Bearer {made.keys['ada']}"}, json={})
                return asked.status_code == 401 and "another one has replaced it" in asked.text

            await until(is_refused, "the old keys have ended", 30)
        async with seats(made, "newest auto") as found:
            assert "ada-secret whoami" in await found["newest auto"].call("whoami")
        done = await command("auth", "status", "--caller", "key:ada", "--json", *made.options)
        assert [(one["caller"], one["state"]) for one in done.json["logins"]] == [("key:ada", "logged in")]
    assert [key for key in made.keys.values() if key.split("_", 2)[2] in made.log.read_text()] == []


async def test_the_keys_of_one_person_share_its_login_and_no_other_key_does(world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(world, tmp_path) as made:
        await log_in(world, made, "laptop", user="ada")
        async with seats(made, "laptop auto", "phone auto", "bob auto") as found:
            assert "ada-secret whoami" in await found["laptop auto"].call("whoami")
            assert "ada-secret whoami" in await found["phone auto"].call("whoami")
            assert "ada-secret" not in await found["bob auto"].call("whoami")
        done = await command("auth", "status", "--caller", "holder:*", "--json", *made.options)
        assert [one["caller"] for one in done.json["logins"]] == ["holder:eve@example.com"]
        audited = (await command("audit", "--json", *made.options)).out.splitlines()
        callers = {json.loads(line)["caller"] for line in audited}
        assert {"holder:eve@example.com by key laptop", "holder:eve@example.com by key phone", "key:bob"} <= callers


async def test_a_caller_that_may_find_the_tools_first_is_asked_for_its_login_in_the_call(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with gateway(world, tmp_path, before_login="list") as made:
        await log_in(world, made, "ada")
        async with seats(made, "ada auto") as found:
            assert "ada-secret" in await found["ada auto"].call("whoami")
        await asyncio.to_thread(world.control, user="cyd")
        asked: list[str] = []
        later: list[asyncio.Task[None]] = []

        async def visit(address: str) -> None:
            redirect = await asyncio.to_thread(world.browser, address)
            assert (await asyncio.to_thread(world.http.get, redirect)).status_code == 200

        async def elicit(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            assert isinstance(params, types.ElicitRequestURLParams)
            asked.append(params.url)
            later.append(asyncio.create_task(visit(params.url)))
            return types.ElicitResult(action="accept")

        answers: Any = elicit
        headers = {"Authorization": f"Bearer {made.keys['cyd']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
            transport = streamable_http_client(made.address, http_client=http)
            async with Client(transport, mode="auto", elicitation_callback=answers) as client:
                seat = Seat("cyd")
                seat.client = client
                assert "whoami" in await seat.find("who calls")
                assert "login needed" in seat.seen[-1]
                assert "ada-secret" not in seat.seen[-1]
                assert "cyd-secret whoami" in await seat.call("whoami")
        await asyncio.gather(*later)
        assert len(asked) == 1


async def test_a_caller_that_is_not_verified_gets_a_clear_error(world: LoginWorld, tmp_path: Path) -> None:
    config = given({"desk": {"type": "http", "url": world.server_url, **ENTRY}}, tmp_path)
    process = await asyncio.create_subprocess_exec(
        *WARM, "serve", "--http", "127.0.0.1:0", *map(str, config), "--encoder", "none",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        address = ""
        while not address:
            found = re.search(r"http://\S+/mcp", (await process.stderr.readline()).decode())
            address = found.group() if found is not None else ""
        async with Client(address) as client:
            said = str(await client.call_tool("find_tool", {"tool_description": "who calls"}))
            assert "desk (it acts as each caller, and it is not known who calls: send a key or a token)" in said
            done = await client.call_tool("call_tool", {"tool_name": "desk__whoami", "parameters": {}})
            assert done.is_error
    finally:
        process.terminate()
        await process.communicate()
