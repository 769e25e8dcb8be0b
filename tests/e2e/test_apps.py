"""Apps through the gateway: pages under the name of their server, and tools that pages may call and models may not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import WriteServers
from tests.e2e.extended import APPS, called, declaring, entry, extended_gateway, listed
from tests.e2e.raw_clients import LEGACY, MODERN, http_client
from tests.waiting import until


def as_host(params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**(params or {}), **declaring(APPS)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    config = tmp_path_factory.mktemp("apps") / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": entry("one"), "two": entry("two")}}))
    async with extended_gateway(config, "--database", "none") as at:
        yield at


async def test_a_host_gets_tools_with_pages_directly_and_another_client_does_not(address: str) -> None:
    async with http_client(address, MODERN) as client:

        async def are_all_there() -> bool:
            return {"one__show_clock", "two__show_clock", "one__tick", "two__tick"} <= set(
                await listed(client, as_host())
            )

        # A list does not wait long for servers that start.
        await until(are_all_there, timeout=30)
        plain, shown = await listed(client), await listed(client, as_host())
    assert not [name for name in plain if "clock" in name or "tick" in name]
    assert shown["one__show_clock"]["_meta"]["ui"]["resourceUri"] == "ui://one+clock/page.html"
    assert shown["two__old_clock"]["_meta"] == {"ui/resourceUri": "ui://two+clock/page.html"}
    assert shown["one__tick"]["_meta"] == {"ui": {"visibility": ["app"]}}


async def test_a_page_that_is_listed_nowhere_is_read_from_its_own_server(address: str) -> None:
    async with http_client(address, MODERN) as client:
        for name in ("one", "two"):
            uri = f"ui://{name}+clock/page.html"
            [content] = (await client.ask("resources/read", {"uri": uri}))["result"]["contents"]
            assert content["uri"] == uri
            assert f"clock of {name}</title>" in content["text"]
            assert content["mimeType"] == "text/html;profile=mcp-app"
            assert content["_meta"]["ui"] == {
                "csp": {"connectDomains": ["https://example.com"]},
                "prefersBorder": True,
            }
        refused = await client.ask("resources/read", {"uri": "ui://clock/page.html"})
        assert "Several servers" in refused["error"]["message"]
        unknown = await client.ask("resources/read", {"uri": "ui://one+other/page.html"})
        assert "error" in unknown


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_result_of_call_tool_names_the_page_of_the_called_tool(address: str, era: str) -> None:
    async with http_client(address, era) as client:
        result = await called(client, "call_tool", tool_name="one__show_clock", parameters={})
        assert result["content"][0]["text"] == "the clock of one"
        assert result["_meta"]["ui"] == {
            "resourceUri": "ui://one+clock/page.html",
        }


async def test_a_model_neither_finds_nor_lists_nor_calls_a_tool_for_pages(address: str) -> None:
    async with http_client(address, MODERN) as client:
        found = await called(client, "find_tool", tool_description="wind the spring of the clock")
        assert "tick" not in found["content"][0]["text"]
        every = await called(client, "list_tools", server="one")
        assert "show_clock" in every["content"][0]["text"]
        assert "tick" not in every["content"][0]["text"]
        for name in ("one__tick", "tick", "one/tick", "mcp__one__tick"):
            refused = await called(client, "call_tool", as_host(), tool_name=name, parameters={})
            assert refused["isError"], name
        for params in ({}, as_host()):
            refused = await called(client, "call_tool", params, tool_name="tick", server_name="one", parameters={})
            assert "Only the pages of its server can call it" in refused["content"][0]["text"]
        # A client that shows no pages lists what it gets to its model.
        direct = await called(client, "one__tick")
        assert "Only the pages" in direct["error"]["message"]


async def test_a_page_calls_the_tools_of_its_own_server_by_their_own_names(address: str) -> None:
    async with http_client(address, MODERN) as client:
        unclear = await called(client, "tick", as_host())
        assert unclear.get("isError") or "error" in unclear
        for name in ("two", "one"):
            reader = {"io.modelcontextprotocol/clientInfo": {"name": f"host of {name}", "version": "1"}}
            uri = f"ui://{name}+clock/page.html"
            params = {"_meta": {**declaring(APPS)["_meta"], **reader}}
            await client.ask("resources/read", {"uri": uri, **params})
            result = await called(client, "tick", params)
            assert result["content"][0]["text"] == f"ticked at {name}"


async def test_calls_of_a_page_obey_the_rules(write_servers: WriteServers, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[[rules]]\ntool = "*tick*"\neffect = "deny"\n')
    async with (
        extended_gateway(write_servers({"one": entry("one")}), "--settings", settings) as at,
        http_client(at, MODERN) as client,
    ):
        assert "tick" not in await listed(client, as_host())
        refused = await called(client, "tick", as_host())
        assert "denied" in str(refused) or "not allowed" in str(refused) or refused.get("isError")


async def test_with_one_server_pages_keep_their_names_and_transparent_mode_hides_nothing_from_hosts(
    write_servers: WriteServers,
) -> None:
    config = write_servers({"one": entry("one")})
    async with (
        extended_gateway(config, "--database", "none", "--mode", "transparent") as at,
        http_client(at, MODERN) as client,
    ):
        plain, shown = await listed(client), await listed(client, as_host())
        assert "tick" not in plain
        assert "tick" in shown
        assert shown["show_clock"]["_meta"]["ui"]["resourceUri"] == "ui://clock/page.html"
        assert (await called(client, "tick", as_host()))["content"][0]["text"] == "ticked at one"
        assert "error" in await called(client, "tick")
        read = await client.ask("resources/read", {"uri": "ui://clock/page.html"})
        assert "clock of one" in read["result"]["contents"][0]["text"]
