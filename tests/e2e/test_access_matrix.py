"""Every own tool and every relayed method, for every kind of caller, in both eras and on both transports: exactly the
documented answer. Lists, searches, calls, resources and prompts agree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_optimizer.domain.caller import Risk
from tests.conftest import WriteServers
from tests.e2e.access import ALLOWED, ERAS, OUT, calling, expected, in_a_word, own, table
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import LEGACY, PATIENCE, HttpClient, StdioClient, answer_of, message, stdio_client
from tests.e2e.running import gateway_at
from tests.servers.login_world import LoginWorld, issuer_world
from tests.waiting import until

pytestmark = pytest.mark.slow

VAULT = Path(__file__).parents[1] / "servers" / "vault.py"
SETTINGS = """
require_auth = true
max_tokens = 300
preview_tokens = 200
[[token_issuers]]
name = "corp"
issuer = "{issuer}"
required_scopes = ["mcp:use"]
[token_issuers.risk_scopes]
read = ["mcp:read"]
write = ["mcp:write"]
destructive = ["mcp:delete"]
"""


class OverHttp(HttpClient):
    """A caller over HTTP, with a credential or none."""

    async def reply(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        named = {"Mcp-Name": params["uri"]} if "uri" in params else {}
        response = await self.post(message(method, params, 1, self.era), **named)
        # Modern answers a JSON-RPC error with 400, or 404.
        is_answer = response.status_code in (200, 400, 404) and "jsonrpc" in response.text
        return (200, answer_of(response)) if is_answer else (response.status_code, {})


class OnStdio:
    """The caller who started the gateway."""

    def __init__(self, client: StdioClient) -> None:
        self.client, self.era = client, client.era

    async def reply(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, await self.client.ask(method, params)


def servers(write_servers: WriteServers) -> Path:
    return write_servers({name: {"command": sys.executable, "args": [str(VAULT), name]} for name in (ALLOWED, OUT)})


@asynccontextmanager
async def caller(address: str, era: str, credential: str) -> AsyncIterator[OverHttp]:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        client = OverHttp(address, era, http)
        if credential:
            client.headers["Authorization"] = f"Bearer {credential}"
        response = await client.post(message("ping" if era == LEGACY else "server/discover", {}, 0, era))
        if response.status_code not in (401, 403):
            await client.open()
        yield client


async def kept_result(client: OverHttp) -> str:
    """The id of a result that was cut, as its owner sees it."""
    found: list[str] = []

    async def is_kept() -> bool:
        params = own("call_tool", tool_name=f"read_{OUT}_book", parameters={"text": "long " * 20, "rows": 500})[1]
        _, answer = await client.reply("tools/call", params)
        if not answer["result"].get("isError"):
            found.append(answer["result"]["_meta"]["mcp-optimizer/result"]["resultId"])
        return bool(found)

    await until(is_kept, timeout=60)
    return found[0]


async def credentials(world: LoginWorld, address: str) -> dict[str, tuple[str, str]]:
    """By kind of caller: its credential, and the column of the table that it should be answered with."""
    scopes = "mcp:use mcp:read mcp:write mcp:delete"
    good = {"aud": address, "sub": "ada", "scope": scopes}
    return {
        "none": ("", "401"),
        "nonsense": ("mcpo_nobody_has_this_key", "401"),
        "expired": (world.sign(**good | {"exp": int(time.time()) - 600}), "401"),
        "wrong audience": (world.sign(**good | {"aud": "https://other.example/mcp"}), "401"),
        "too little scope": (world.sign(**good | {"scope": "mcp:read"}), "403"),
        "scope for reading": (world.sign(**good | {"scope": "mcp:use mcp:read"}), "reads by scope"),
        "every scope": (world.sign(**good), "full"),
        "key without the server": (await made_key("some", Risk.DESTRUCTIVE, (ALLOWED,)), "without the server"),
        "key that reads": (await made_key("reader", Risk.READ), "reads"),
        "full key": (await made_key("all", Risk.DESTRUCTIVE), "full"),
    }


@pytest.mark.promise("found-is-callable")
@pytest.mark.parametrize("era", ERAS)
async def test_every_caller_gets_exactly_the_documented_answers_over_http(
    write_servers: WriteServers, era: str
) -> None:
    config = servers(write_servers)
    settings = config.with_name("settings.toml")
    with issuer_world() as world:
        settings.write_text(SETTINGS.format(issuer=world.issuer))
        await made_key("owner", Risk.DESTRUCTIVE)
        async with gateway_at(config, "--settings", settings) as address:
            async with caller(address, era, await made_key("keeper", Risk.READ)) as keeper:
                foreign = await kept_result(keeper)
            found, promised = {}, {}
            for kind, (credential, column) in (await credentials(world, address)).items():
                async with caller(address, era, credential) as client:
                    found[kind] = await table(client, foreign)
                promised[kind] = expected(era, column)
    differing = {
        kind: {name: (word, promised[kind][name]) for name, word in words.items() if word != promised[kind][name]}
        for kind, words in found.items()
    }
    assert differing == {kind: {} for kind in found}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("rules", "column"),
    [
        ("", "full"),
        ('[[rules]]\neffect = "allow"\nrisk = "read"\n[[rules]]\neffect = "deny"\ncaller = "local"\n', "reads"),
        (f'[[rules]]\neffect = "deny"\nserver = "{OUT}"\n', "denied by a rule"),
    ],
)
async def test_on_stdio_the_rules_say_what_the_user_may_do(
    write_servers: WriteServers, era: str, rules: str, column: str
) -> None:
    config = servers(write_servers)
    settings = config.with_name("settings.toml")
    settings.write_text(rules)
    async with stdio_client(config, "--settings", settings, era=era) as stdio:
        client = OnStdio(stdio)

        async def is_up() -> bool:
            words = [in_a_word("", *await client.reply(*calling(f"read_{server}"))) for server in (ALLOWED, OUT)]
            return "unknown" not in words

        await until(is_up, timeout=60)
        assert await table(client, "result-of-nobody") == expected(era, column)
