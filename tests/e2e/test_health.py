"""`health`: an exit code for containers and monitors."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import command, gateway_at
from tests.waiting import until


async def test_a_gateway_that_answers_is_healthy_and_ready(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    async with gateway_at(config, "--database", "none") as address:
        assert (await command("health", address, cold=True)).code == 0
        place = address.removesuffix("/mcp").removeprefix("http://")
        assert (await command("health", place)).out.startswith("healthy: ")
        assert (await command("health", "--json", env={"MCP_OPTIMIZER_HTTP": place})).json["healthy"]

        async def is_ready() -> bool:
            return (await command("health", "--ready", address)).code == 0

        await until(is_ready)


async def test_one_that_does_not_answer_or_refuses_is_not() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        started = time.monotonic()
        done = await command("health", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", 0.5)
    assert (done.code, "does not answer" in done.err) == (1, True)
    assert time.monotonic() - started < 10
    assert (await command("health", "http://127.0.0.1:1", "--json")).json["healthy"] is False


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://[", "http://a:x"])
async def test_what_is_no_address_is_wrong_usage(address: str) -> None:
    assert (await command("health", address)).code == 2
