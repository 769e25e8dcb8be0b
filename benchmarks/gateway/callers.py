"""What knowing the caller costs a call over HTTP.

    python -m benchmarks.gateway.callers [--rounds 40] [--calls 50]

Without a credential, with a key, with a key that has limits beside a thousand rules, and without the audit: one gateway
each, in front of the same kind of server; they take turns in one run, so that other load on the machine affects
them alike. The open gateway is there twice: the ratio of the two is the noise. What counts is the ratio of the
median of all calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2

from benchmarks.clients import PlainClient
from benchmarks.paths import PLAIN_SERVER
from benchmarks.processes import free_port, process
from mcp_optimizer.access.callers.keys import Wanted, new_key, opened_keys
from mcp_optimizer.domain.caller import Risk

RULES = "".join(f'[[rules]]\neffect = "deny"\ntool = "secret_{number}_*"\n' for number in range(1_000))
CALL = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "x" * 1_000}}}
OPEN = "no credential"
WAYS = {
    OPEN: [],
    "no credential again": [],
    "a key": ["--require-auth"],
    "a key that reads one server, 1,000 rules": ["--require-auth"],
    "no credential, no audit": ["--no-audit"],
}


async def key_in(folder: Path, wanted: Wanted) -> str:
    from datetime import UTC, datetime

    key, text = new_key(wanted, datetime.now(UTC))
    async with opened_keys(folder / "catalog.db") as keys:
        await keys.add(key, 100)
    return text


async def way(stack: AsyncExitStack, name: str, folder: Path, *, is_modern: bool) -> PlainClient:
    """A client of a gateway of its own."""
    folder.mkdir()
    config, settings, port = folder / "mcp.json", folder / "settings.toml", free_port()
    entry = {"command": sys.executable, "args": [str(PLAIN_SERVER), "plain"]}
    config.write_text(json.dumps({"mcpServers": {"plain": entry}}))
    settings.write_text(RULES if "rules" in name else "")
    headers = {}
    if "a key" in name:
        servers = ("plain",) if "one server" in name else None
        risk = Risk.READ if "reads" in name else Risk.DESTRUCTIVE
        headers["Authorization"] = f"Bearer {await key_in(folder, Wanted('bench', servers, risk))}"
    common = ["--config", str(config), "--settings", str(settings), "--database", str(folder / "catalog.db")]
    command = [sys.executable, "-m", "mcp_optimizer", "serve", *common, "--http", f"127.0.0.1:{port}"]
    await stack.enter_async_context(process(*command, "--encoder", "none", *WAYS[name], port=port))
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False))
    client = PlainClient(http, f"http://127.0.0.1:{port}/mcp", is_modern=is_modern)
    await client.connect()
    async with asyncio.timeout(60):
        while (await client.request(1, "tools/call", CALL))["result"].get("isError"):
            await asyncio.sleep(0.1)
    return client


async def seconds_of(client: PlainClient, calls: int) -> list[float]:
    taken = []
    loop = asyncio.get_running_loop()
    for number in range(calls):
        started = loop.time()
        answer = await client.request(number, "tools/call", CALL)
        taken.append(loop.time() - started)
        assert not answer["result"].get("isError"), answer
    return taken


async def measure(rounds: int, calls: int, *, is_modern: bool) -> None:
    print(f"{'modern' if is_modern else 'legacy'}: p50 of {rounds * calls:,} calls each")
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = {name: await way(stack, name, place / str(at), is_modern=is_modern) for at, name in enumerate(WAYS)}
        taken: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(rounds):
            for name, client in clients.items():
                taken[name] += await seconds_of(client, calls)
        least = statistics.median(taken[OPEN])
        for name, seconds in taken.items():
            middle = statistics.median(seconds)
            print(f"  {name:42} {middle * 1_000:7.3f} ms   {middle / least:5.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("MCP_OPTIMIZER_")]:
        del os.environ[name]
    for is_modern in (False, True):
        asyncio.run(measure(options.rounds, options.calls, is_modern=is_modern))


if __name__ == "__main__":
    main()
