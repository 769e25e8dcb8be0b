"""What a verified token says of its holder decides rules, and for whom servers act."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import MODERN, PATIENCE, HttpClient, answer_of, message
from tests.e2e.running import command, gateway_at
from tests.servers.login_world import ROOT, LoginWorld, issuer_world, running
from tests.waiting import until

pytestmark = pytest.mark.slow

SETTINGS = """
encoder = "none"
require_auth = true
[[token_issuers]]
name = "corp"
issuer = "{issuer}"
groups_claim = "realm_access.roles"
[[rules]]
effect = "deny"
server = "two"
group = "guest*"
[[rules]]
effect = "allow"
group = "staff"
[[rules]]
effect = "deny"
reason = "Only staff."
"""


@pytest.fixture(scope="module")
def world() -> Iterator[LoginWorld]:
    with issuer_world() as made:
        yield made


@asynccontextmanager
async def gateway(write_servers: WriteServers, world: LoginWorld) -> AsyncIterator[tuple[str, Path]]:
    config = write_servers({name: plain_server(name) for name in ("one", "two")})
    settings = config.with_name("settings.toml")
    settings.write_text(SETTINGS.format(issuer=world.issuer))
    async with gateway_at(config, "--settings", settings) as address:
        yield address, settings


class Holder:
    """A caller with tokens that say whatever a test wants."""

    def __init__(self, http: httpx2.AsyncClient, world: LoginWorld, address: str) -> None:
        self._http, self._world, self._address = http, world, address

    async def asks(self, method: str, params: dict[str, Any] | None = None, **claims: Any) -> tuple[int, str]:
        client = HttpClient(self._address, MODERN, self._http)
        said = {"aud": self._address, "sub": "ada", **claims}
        client.headers["Authorization"] = f"Bearer {self._world.sign(**said)}"
        response = await client.post(message(method, params, 1, MODERN))
        return response.status_code, str(answer_of(response)) if response.status_code == 200 else response.text

    async def finds(self, **claims: Any) -> str:
        found = {"name": "find_tool", "arguments": {"tool_description": "act for a person"}}
        return (await self.asks("tools/call", found, **claims))[1]

    async def called(self, tool: str, **claims: Any) -> str:
        """The first text of the answer to a call."""
        params = {"name": "call_tool", "arguments": {"tool_name": tool, "parameters": {}}}
        client = HttpClient(self._address, MODERN, self._http)
        client.headers["Authorization"] = f"Bearer {self._world.sign(aud=self._address, **claims)}"
        answer = await client.exchange(message("tools/call", params, 1, MODERN))
        return str(answer["result"]["content"][0]["text"])

    async def calls(self, tool: str, *groups: str) -> str:
        params = {"name": "call_tool", "arguments": {"tool_name": tool, "parameters": {}}}
        return (await self.asks("tools/call", params, realm_access={"roles": list(groups)}))[1]


async def test_groups_of_a_token_decide_what_its_holder_finds_and_calls(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    async with gateway(write_servers, world) as (address, settings), httpx2.AsyncClient(timeout=PATIENCE) as http:
        ada = Holder(http, world, address)
        assert "isError': True" not in await ada.calls("one__echo", "staff")
        assert "Only staff" in await ada.calls("one__echo", "key:staff", "*", "Staff")
        assert "Only staff" in await ada.calls("one__echo")
        assert "rule 1 of the settings denies it" in await ada.calls("two__echo", "guests", "staff")
        found = {"name": "find_tool", "arguments": {"tool_description": "say something back"}}
        for groups, is_there in ((["staff"], True), (["guests", "staff"], False), ([], False)):
            _, reply = await ada.asks("tools/call", found, realm_access={"roles": groups})
            assert ("two__echo" in reply) is is_there, groups
        for roles in (7, ["a\nb"], [str(number) for number in range(1_001)]):
            status, reply = await ada.asks("tools/call", found, realm_access={"roles": roles})
            assert status == 401
            assert "realm_access.roles" in reply

    test = ("policy", "test", "two__echo", "--settings", settings, "--config", settings.with_name("mcp.json"))
    for named, effect in (("staff", "allow"), ("staff,guests", "deny"), ("", "deny")):
        said = (await command(*test, "--caller", "corp:ada", "--caller-groups", named, "--json")).json
        assert (said["effect"], said["groups"]) == (effect, sorted(filter(None, named.split(","))))
    refused = await command(*test, "--caller", "key:ada", "--caller-groups", "staff")
    assert refused.code == 2
    assert "only tokens name groups" in refused.err


async def test_a_rule_about_groups_that_no_issuer_names_is_an_error(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('demo = true\n[[rules]]\neffect = "deny"\ngroup = "guests"\n')
    done = await command("policy", "test", "delete_card", "--settings", settings)
    assert done.code == 2
    assert "Rule 1 is about a group, and no [[token_issuers]] names its groups_claim" in done.err


WHOSE = """
encoder = "none"
require_auth = true
idle_timeout = 1.0
log_level = "debug"
trust_remote = "off"
[[token_issuers]]
name = "corp"
issuer = "{issuer}"
"""
HOSTILE: tuple[Any, ...] = (
    None,
    "",
    "x\r\nX-Planted: 1",
    "planted\u202e",
    ["planted"],
    {"planted": 1},
    "p" * 1_001,
    True,
)


async def test_headers_and_variables_of_an_entry_have_the_values_of_the_caller_s_token(
    write_servers: WriteServers, world: LoginWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    with running("tests.servers.whose") as remote:
        child = {
            "command": sys.executable,
            "args": ["-m", "tests.servers.whose"],
            "env": {"WHO": "${caller.claim.unit}"},
        }
        config = write_servers(
            {
                "child": {**child, "cwd": str(ROOT)},
                "remote": {"url": remote, "headers": {"X-Who": "${caller.claim.unit}", "X-Mail": "<${caller.email}>"}},
                "same": {"url": remote, "headers": {"X-Who": "everybody"}},
            }
        )
        settings = config.with_name("settings.toml")
        settings.write_text(WHOSE.format(issuer=world.issuer))
        async with gateway_at(config, "--settings", settings) as address, httpx2.AsyncClient(timeout=PATIENCE) as http:
            await _each_acts_as_itself(Holder(http, world, address))
            await _hostile_claims_reach_no_server(Holder(http, world, address))
    log = capfd.readouterr().err
    for planted in ("planted", "eu-ada", "us-bob", "ada@example.com"):
        assert planted not in log


async def _each_acts_as_itself(callers: Holder) -> None:
    async def acts(server: str, sub: str, unit: str) -> dict[str, Any]:
        """What the server says of a call of the tool that it lists for this unit."""
        claims = {"sub": sub, "unit": unit, "email": f"{sub}@example.com"}
        listed = re.compile(rf"((?:{server}__)?act_for_{unit.replace('-', '_')})\(\) \[{server}\]")
        said: list[str] = []

        async def has_acted() -> bool:
            # When another server lists a tool of this name in between, the tool is called by a longer one.
            found = listed.findall(await callers.finds(**claims))
            said[:] = [await callers.called(name, **claims) for name in found[:1]]
            return bool(said) and "exists on several servers" not in said[0]

        await until(has_acted, f"{sub} calls what {server} lists for {unit}", PATIENCE)
        return dict(json.loads(said[0]))

    ada, bob = await acts("child", "ada", "eu-ada"), await acts("child", "bob", "us-bob")
    assert (ada["who"], bob["who"]) == ("eu-ada", "us-bob")
    assert ada["process"] != bob["process"]
    assert (await acts("remote", "ada", "eu-ada"))["headers"] == {"x-who": "eu-ada", "x-mail": "<ada@example.com>"}
    assert (await acts("remote", "bob", "us-bob"))["headers"] == {"x-who": "us-bob", "x-mail": "<bob@example.com>"}
    found = await callers.finds(sub="bob", unit="us-bob", email="bob@example.com")
    assert "us_bob" in found
    assert "eu_ada" not in found
    said = await callers.called("child__act_for_eu_ada", sub="bob", unit="us-bob", email="bob@example.com")
    assert "eu-ada" not in said.replace("act_for_eu_ada", "")
    # Another token of the same person says something else, so its process is another one.
    moved = await acts("child", "ada", "us-ada")
    assert moved["who"] == "us-ada"
    assert moved["process"] != ada["process"]
    assert "eu_ada" not in await callers.finds(sub="ada", unit="us-ada", email="ada@example.com")
    # Nobody uses the process for a second: it ends, and the next call starts one.
    await until(lambda: not _is_running(moved["process"]), "an idle process ends", PATIENCE)
    again = await acts("child", "ada", "us-ada")
    assert (again["who"], again["process"] != moved["process"]) == ("us-ada", True)


async def _hostile_claims_reach_no_server(callers: Holder) -> None:
    for number, unit in enumerate(HOSTILE):
        claims = {"sub": f"eve{number}", "email": "eve@example.com", **({} if unit is None else {"unit": unit})}
        found = await callers.finds(**claims)
        assert "act_for_everybody" in found
        assert "the claim 'unit'" in found
        assert "planted" not in found
        for server in ("child", "remote"):
            said = await callers.called(f"{server}__act_for_nobody", **claims)
            assert "the claim 'unit'" in said, (server, unit)
            assert "planted" not in said
    claims = {"sub": "eve", "unit": "eu", "email": "eve@example.com>,<ada@example.com"}
    assert "the claim 'email'" in await callers.called("remote__act_for_eu", **claims)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
