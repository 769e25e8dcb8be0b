"""What a verified token says of its holder decides rules, for every way of asking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import MODERN, PATIENCE, HttpClient, answer_of, message
from tests.e2e.running import command, gateway_at
from tests.servers.login_world import LoginWorld, issuer_world

pytestmark = pytest.mark.slow

SETTINGS = """
encoder = "none"
require_auth = true
[[token_issuers]]
name = "corp"
issuer = "{issuer}"
groups_claim = "realm_access.roles"
role_claim = "role"
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
        await ada.calls("one__echo", "staff", "<b>bold</b>")
        seeing = {"Authorization": f"Bearer {world.sign(aud=address, sub='eve', role='see')}"}
        page = (await http.get(address.replace("/mcp", "/callers"), headers=seeing)).text
        assert "groups: &lt;b&gt;bold&lt;/b&gt; and staff" in page

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
