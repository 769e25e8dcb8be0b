"""Servers behind a proxy: reached through the one that the environment names, as every other program reaches them."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.transports.http_client import http_client
from tests.unit.endpoints import serving

FAR = "http://server.invalid/mcp"


async def ask(url: str) -> Any:
    async with http_client(ServerSpec(name="far", transport=Transport.HTTP, url=url)) as client:
        return (await client.post(url, json={"hello": 1})).json()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
async def test_a_server_is_reached_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with serving(lambda path, body, _: (200, [path, body])) as address:
        monkeypatch.setenv(variable, address.removesuffix("/v1"))
        assert await ask(FAR) == [FAR, {"hello": 1}]


async def test_what_the_environment_excepts_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda path, body, _: (200, [path, body])) as address:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await ask(f"{address}/mcp") == ["/v1/mcp", {"hello": 1}]
