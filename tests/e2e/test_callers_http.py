"""Callers of a real gateway over HTTP: who is let in, and that nobody gets what is another's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from mcp_optimizer.domain.caller import Risk
from tests.conftest import WriteServers, plain_server
from tests.e2e.made_keys import made_key, revoke
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, MODERN, HttpClient, answer_of, message
from tests.e2e.running import command, gateway_at
from tests.waiting import until

ERAS = (LEGACY, MODERN)
HANDSHAKE = message("initialize", HELLO, 0)


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def caller(address: str, era: str, key: str = "") -> AsyncIterator[HttpClient]:
    async with httpx2.AsyncClient(timeout=30, headers=bearer(key) if key else {}) as http:
        client = HttpClient(address, era, http)
        await client.open()
        yield client


async def test_who_has_no_credential_or_a_wrong_one_gets_401_with_every_method_and_in_both_eras(config: Path) -> None:
    key = await made_key("ci")
    async with gateway_at(config, "--require-auth") as address, httpx2.AsyncClient(timeout=30) as http:
        for headers in ({}, bearer(key[:-1]), bearer("eyJhbGciOiJub25lIn0.e30."), {"X-API-Key": "mcpo_x"}):
            for era in ERAS:
                sent = {**ACCEPT, "MCP-Protocol-Version": era, **headers}
                posted = await http.post(address, json=message("tools/list", {}, 1, era), headers=sent)
                got, deleted = await http.get(address, headers=sent), await http.delete(address, headers=sent)
                assert [one.status_code for one in (posted, got, deleted)] == [401] * 3
                assert posted.headers["www-authenticate"].startswith('Bearer realm="mcp-optimizer"')
        origin = address.removesuffix("/mcp")
        assert (await http.get(f"{origin}/health")).status_code == 200
        assert (await http.get(f"{origin}/ready")).status_code in (200, 503)
        assert (await http.get(f"{origin}/.well-known/oauth-protected-resource/mcp")).status_code == 404
        # Nobody is sent on to the host that a request names.
        assert (await http.get(f"{address}/", headers={"Host": "evil.example"})).status_code == 404


async def test_nobody_s_body_is_read_before_they_are_known(config: Path) -> None:
    await made_key("ci")
    async with gateway_at(config, "--require-auth") as address:
        host, port = address.removeprefix("http://").removesuffix("/mcp").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = [f"Host: {host}:{port}", "Content-Type: application/json", "Content-Length: 9000000"]
        writer.write("\r\n".join(["POST /mcp HTTP/1.1", *head, "", ""]).encode())
        status = await asyncio.wait_for(reader.readline(), 10)
        assert b"401" in status
        answer = await asyncio.wait_for(reader.read(), 10)
        assert b"connection: close" in answer.lower()
        writer.close()


@pytest.mark.parametrize("era", ERAS)
async def test_a_key_opens_the_gateway_as_anybody_else_s_client_would_use_it(config: Path, era: str) -> None:
    key = await made_key("ci", Risk.DESTRUCTIVE)
    async with gateway_at(config, "--require-auth") as address, caller(address, era, key) as client:
        await until(lambda: _echoes(client))
        answered = await client.http.post(
            address, json=message("ping", {}, 2), headers={**client.headers, "X-API-Key": "mcpo_x"}
        )
        assert answered.status_code == 400
    listed = await command("key", "list", "--json")
    assert listed.json["keys"][0]["last_used_at"]


async def _echoes(client: HttpClient) -> bool:
    asked = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "hi"}}}
    answer = await client.ask("tools/call", asked)
    return not answer["result"].get("isError")


async def test_a_running_gateway_notices_new_and_revoked_keys(config: Path) -> None:
    async with gateway_at(config, "--require-auth") as address, httpx2.AsyncClient(timeout=30) as http:
        key = await made_key("ci")

        async def status() -> int:
            return (await http.post(address, json=HANDSHAKE, headers={**ACCEPT, **bearer(key)})).status_code

        assert await status() == 200
        await revoke("ci")

        async def is_refused() -> bool:
            return await status() == 401

        await until(is_refused, timeout=5)


async def test_a_session_is_only_its_opener_s(config: Path) -> None:
    ada, bob = await made_key("ada"), await made_key("bob")
    async with gateway_at(config) as address, caller(address, LEGACY, ada) as client:
        for headers in (bearer(bob), {}):
            async with httpx2.AsyncClient(timeout=30, headers=headers) as http:
                sent = {**client.headers, **headers}
                posted = await http.post(address, json=message("tools/list", {}, 5), headers=sent)
                got, deleted = await http.get(address, headers=sent), await http.delete(address, headers=sent)
                assert [one.status_code for one in (posted, got, deleted)] == [404] * 3
                unknown = {**sent, "Mcp-Session-Id": "0" * 32}
                same = await http.post(address, json=message("tools/list", {}, 5), headers=unknown)
                assert (same.status_code, same.json()) == (404, posted.json())
        assert "result" in await client.ask("tools/list")
        async with caller(address, LEGACY) as anyone:
            sent = {**anyone.headers, **bearer(bob)}
            assert (await anyone.http.post(address, json=message("ping", {}, 5), headers=sent)).status_code == 404


async def test_an_open_stream_ends_with_its_key(config: Path) -> None:
    key = await made_key("ci")
    async with (
        gateway_at(config, "--require-auth") as address,
        caller(address, LEGACY, key) as legacy,
        caller(address, MODERN, key) as modern,
    ):
        await revoke_while_listening(legacy, modern)


async def revoke_while_listening(legacy: HttpClient, modern: HttpClient) -> None:
    wanted = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 3, MODERN)
    headers = {**modern.headers, "Mcp-Method": "subscriptions/listen"}
    async with (
        legacy.http.stream("GET", legacy.address, headers=legacy.headers) as got,
        modern.http.stream("POST", modern.address, json=wanted, headers=headers) as posted,
    ):
        assert (got.status_code, posted.status_code) == (200, 200)
        await revoke("ci")
        async with asyncio.timeout(20):
            for stream in (got, posted):
                with contextlib.suppress(httpx2.RemoteProtocolError):
                    async for _ in stream.aiter_raw():
                        pass


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_kept_for_one_key_no_other_reads_though_their_clients_have_one_name(
    config: Path, era: str
) -> None:
    ada, bob = await made_key("ada", Risk.DESTRUCTIVE), await made_key("bob", Risk.DESTRUCTIVE)
    async with (
        gateway_at(config, "--require-auth", "--max-tokens", "200") as address,
        caller(address, era, ada) as first,
        caller(address, era, ada) as again,
        caller(address, era, bob) as other,
    ):
        await until(lambda: _echoes(first))
        long = " ".join(f"planted {number}" for number in range(2_000))
        asked = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": long}}}
        answer = await first.ask("tools/call", asked)
        found = re.search(r'"resultId": ?"([^"]+)"', json.dumps(answer))
        assert found is not None, answer
        reading = {"name": "read_result", "arguments": {"result_id": found.group(1)}}
        assert "planted" in json.dumps(await again.ask("tools/call", reading))
        refused = await other.ask("tools/call", reading)
        assert refused["result"]["isError"]
        assert "planted" not in json.dumps(refused)


async def test_nobody_gets_a_cached_result_of_a_client_without_key_and_session(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    settings = config.with_name("settings.toml")
    settings.write_text('[tool_results."echo"]\ncache_seconds = 60\n')
    ada = await made_key("ada", Risk.DESTRUCTIVE)
    asked = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "the same"}}}
    async with gateway_at(config, "--settings", settings) as address:
        for era, key, is_cached in ((MODERN, "", False), (LEGACY, "", True), (MODERN, ada, True)):
            async with caller(address, era, key) as client:
                await until(partial(_echoes, client))
                await client.ask("tools/call", asked)
                meta: dict[str, Any] = (await client.ask("tools/call", asked))["result"]["_meta"]
                assert meta["performance"].get("cachedResult", False) is is_cached, (era, key)


async def test_beyond_loopback_a_gateway_without_any_key_does_not_start(config: Path) -> None:
    outside = ("serve", "--config", config, "--http", "0.0.0.0:0", "--allowed-hosts", "gate:*")
    done = await command(*outside)
    assert done.code == 2
    assert "`mcp-optimizer key create --name NAME`" in done.err
    assert "--open-to-anyone" in done.err
    done = await command(*outside, "--database", "none")
    assert (done.code, "--database none" in done.err) == (2, True)
    done = await command(*outside, env={"MCP_OPTIMIZER_REQUIRE_AUTH": "false"})
    assert (done.code, "--open-to-anyone" in done.err) == (2, True)
    done = await command(*outside, "--open-to-anyone", "--require-auth")
    assert (done.code, "not both" in done.err) == (2, True)


async def test_beyond_loopback_a_gateway_asks_everybody_for_a_key_unless_told_not_to(config: Path) -> None:
    outside = ("--http", "0.0.0.0:0", "--allowed-hosts", "gate:*", "--dashboard-token", "a-token-of-tests")
    async with gateway_at(config, *outside, "--open-to-anyone") as address, httpx2.AsyncClient() as http:
        here = f"http://127.0.0.1:{urlsplit(address).port}/mcp"
        assert (await http.post(here, json=HANDSHAKE, headers=ACCEPT)).status_code == 200
    key = await made_key("ci")
    async with gateway_at(config, *outside) as address, httpx2.AsyncClient() as http:
        here = f"http://127.0.0.1:{urlsplit(address).port}/mcp"
        assert (await http.post(here, json=HANDSHAKE, headers=ACCEPT)).status_code == 401
        opened = await http.post(here, json=HANDSHAKE, headers={**ACCEPT, **bearer(key)})
        assert answer_of(opened)["result"]["serverInfo"]["name"] == "mcp-optimizer"
