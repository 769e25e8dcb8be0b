"""Servers over HTTP: streamable HTTP and the SSE transport, headers, wrong keys, servers that end and return."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallLost
from tests.conftest import Entry, WriteServers
from tests.waiting import until
from tests.warm import WARM_PYTHON

SERVER = Path(__file__).parents[1] / "servers" / "http_server.py"
KEY = {"X-Key": "secret"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def listening(port: int, *script: str) -> AsyncIterator[None]:
    """Run a Python script, and enter the context once it listens on its port."""
    process = await asyncio.create_subprocess_exec(*WARM_PYTHON, *script)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    break
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def http_upstream(port: int) -> AbstractAsyncContextManager[None]:
    return listening(port, str(SERVER), str(port))


@pytest.mark.parametrize(
    ("path", "kind", "answer"),
    [
        ("/mcp", None, "over 2026-07-28"),
        ("/mcp", "streamable-http", "over 2026-07-28"),
        ("/sse", None, "over 2025-11-25"),
        ("/sse", "sse", "over 2025-11-25"),
    ],
)
async def test_a_server_is_reached_over_its_transport_with_its_headers(
    write_servers: WriteServers, path: str, kind: str | None, answer: str
) -> None:
    port = free_port()
    entry = {"url": f"http://127.0.0.1:{port}{path}", "headers": KEY, **({"type": kind} if kind else {})}
    async with http_upstream(port), Optimizer.from_config(write_servers({"far": entry})) as optimizer:
        result = await optimizer.call("whoami")
    assert result["content"][0]["text"] == answer


async def test_a_wrong_key_and_a_wrong_address_are_told_apart(write_servers: WriteServers) -> None:
    port = free_port()
    entries: dict[str, Entry] = {
        "locked": {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Key": "guess"}},
        "lost": {"url": f"http://127.0.0.1:{port}/nowhere", "headers": KEY},
        "absent": {"url": f"http://127.0.0.1:{free_port()}/mcp"},
        "well": {"url": f"http://127.0.0.1:{port}/mcp", "headers": KEY},
    }
    config = write_servers(entries)
    async with http_upstream(port), Optimizer.from_config(config, restart_pause=30.0) as optimizer:
        states = {state.name: state for state in optimizer.servers()}
    assert states["well"].status is ServerStatus.RUNNING
    assert "HTTP status 401 (not authorised: check its headers)" in states["locked"].reason
    assert "HTTP status 404 (not found: check its url)" in states["lost"].reason
    assert states["absent"].reason == "nothing answers at its url"


@pytest.mark.promise("independent-servers")
async def test_a_dead_http_server_leaves_the_baseline_and_comes_back(write_servers: WriteServers) -> None:
    port = free_port()
    entry = {"url": f"http://127.0.0.1:{port}/mcp", "headers": KEY}
    config = write_servers({"far": entry})
    async with http_upstream(port):
        optimizer = Optimizer.from_config(config, restart_pause=0.2, restart_pause_max=0.2)
        optimizer.start()
        await optimizer.wait_for_servers(20)
        assert optimizer.snapshot.baseline_tokens > 0
        with pytest.raises(CallLost):
            await optimizer.call("die")
        # One lost call does not prove that the server is gone; the checks that it triggers do.
        await until(lambda: not optimizer.snapshot.running)
        [state] = optimizer.servers()
        assert state.reason.endswith("nothing answers at its url")
    try:
        async with http_upstream(port):
            await until(lambda: optimizer.snapshot.baseline_tokens, timeout=20)
            assert (await optimizer.call("whoami"))["content"][0]["text"] == "over 2026-07-28"
    finally:
        await optimizer.stop()
