"""Pages of apps, rendered in Chromium through the gateway, call the tools of their own server."""

from __future__ import annotations

import pytest

from tests.conftest import WriteServers
from tests.e2e.app_host import shown
from tests.e2e.browsers import needs_chromium
from tests.e2e.extended import entry, extended_gateway
from tests.e2e.raw_clients import MODERN, http_client


@needs_chromium
@pytest.mark.parametrize("server", ["one", "two"])
async def test_a_page_calls_a_tool_that_several_servers_have_at_its_own_server(
    write_servers: WriteServers, server: str
) -> None:
    config = write_servers({"one": entry("one"), "two": entry("two")})
    async with extended_gateway(config, "--database", "none") as address, http_client(address, MODERN) as client:
        async with shown(client, f"{server}__show_clock") as (frame, calls, problems):
            await frame.get_by_text(f"ticked at {server}").wait_for(timeout=20_000)
        assert calls == ["tick"]
        assert problems == []
