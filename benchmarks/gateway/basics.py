"""Token counting, the metrics of a search, starts with 3,000 tools, and a call.

    python -m benchmarks.gateway.basics

Part of `make bench`. Absolute times depend on the machine; figures that are compared come from one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.paths import PLAIN_SERVER, REPLAY_SERVER
from benchmarks.tools import real_tools
from mcp_optimizer import Optimizer, TokenCounter, TokenMetrics
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.session import open_session

WARM_START_TOOLS = 3_000


def best_of(work: Callable[[], Any], times: int) -> float:
    """Seconds of the shortest of several runs, which was disturbed the least."""
    return min(_timed(work) for _ in range(times))


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def counting() -> None:
    counter = TokenCounter()
    texts = [tool.model_dump_json() for tool in real_tools(200)]
    tokens = sum(counter.count_many(texts))
    seconds = best_of(lambda: counter.count_many(texts), 5)
    print(f"tokens counted per second     {tokens / seconds:12,.0f}")
    print(f"200 tools counted             {seconds * 1e3:12.1f} ms   (target < 50; {tokens:,} tokens)")


async def metrics_part() -> None:
    async with Optimizer.from_config(demo=True, database="none") as optimizer:
        snapshot = optimizer.snapshot
        few = snapshot.running[:5]

        def metrics() -> TokenMetrics:
            return TokenMetrics.of(snapshot.baseline_tokens, sum(tool.tokens for tool in few))

        each = best_of(lambda: [metrics() for _ in range(1_000)], 5) / 1_000
        whole = best_of(lambda: optimizer.gateway.find("move a card to another column"), 200)
    print(f"metrics part of find_tool     {each * 1e3:12.4f} ms   (target < 1)")
    print(f"find_tool over 85 tools       {whole * 1e3:12.2f} ms")


async def starts() -> None:
    tools = real_tools(WARM_START_TOOLS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        dump, config = place / "tools.json", place / "mcp.json"
        dump.write_text(json.dumps([tool.model_dump(mode="json") for tool in tools]), encoding="utf-8")
        entry = {"command": sys.executable, "args": [str(REPLAY_SERVER), str(dump)]}
        config.write_text(json.dumps({"mcpServers": {"replay": entry}}), encoding="utf-8")
        cold, counted = await _start(config, place / "catalog.db")
        warm, recounted = await _start(config, place / "catalog.db")
    print(f"cold start, {len(tools):,} tools       {cold:12.2f} s    ({counted:,} definitions counted)")
    print(f"warm start, same tools        {warm:12.2f} s    ({recounted} counted; {warm / cold:.2f} of cold)")


async def _start(config: Path, database: Path) -> tuple[float, int]:
    started = time.perf_counter()
    async with Optimizer.from_config(config, database=str(database)) as optimizer:
        return time.perf_counter() - started, optimizer.ingestion.counted


async def calls() -> None:
    value = {"value": "x" * 1_000}
    arguments = {"name": "echo", "arguments": value}
    spec = ServerSpec("plain", Transport.STDIO, command=sys.executable, args=(str(PLAIN_SERVER), "plain"))
    info = {"name": "bench", "version": "1"}
    async with open_session(spec, Transport.STDIO, info, Diagnostics()) as session:
        await session.negotiate(legacy=True)
        direct = await _median(lambda: session.request("tools/call", arguments, 10))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        entry = {"command": spec.command, "args": list(spec.args)}
        config.write_text(json.dumps({"mcpServers": {"plain": entry}}), encoding="utf-8")
        async with Optimizer.from_config(config, database="none") as optimizer:
            inside = await _median(lambda: optimizer.call("echo", value))
        from mcp import Client, StdioServerParameters

        serve = ["-m", "mcp_optimizer", "serve", "--alone", "--config", str(config), "--database", "none"]
        async with Client(StdioServerParameters(command=sys.executable, args=serve), mode="legacy") as client:
            through = {"tool_name": "echo", "parameters": value}
            while (await client.call_tool("call_tool", through)).is_error:
                await asyncio.sleep(0.05)
            outside = await _median(lambda: client.call_tool("call_tool", through))
        plain = StdioServerParameters(command=spec.command, args=list(spec.args))
        async with Client(plain, mode="legacy") as client:
            sdk = await _median(lambda: client.call_tool("echo", value))
    print(f"call, our session direct      {direct * 1e3:12.2f} ms")
    print(f"call, through the library     {inside * 1e3:12.2f} ms   ({inside / direct:.2f} x direct)")
    print(f"call, SDK client direct       {sdk * 1e3:12.2f} ms")
    print(f"call, SDK client to gateway   {outside * 1e3:12.2f} ms   ({outside / sdk:.2f} x direct)")


async def _median(call: Callable[[], Awaitable[Any]], times: int = 300) -> float:
    for _ in range(20):
        await call()
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


async def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    counting()
    await metrics_part()
    await starts()
    await calls()


if __name__ == "__main__":
    asyncio.run(main())
