"""Memory of a gateway with 10,000 real tools, at a first start and at the next.

    python -m benchmarks.gateway.memory [--tools N] [--encoder NAME]

The tools are dealt out to twenty servers, and all of them are embedded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from benchmarks.paths import DUMPS, REPLAY_SERVER
from benchmarks.processes import resident_mb
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.upstream.listing import read_dumps

SERVERS = 20
LONGEST_START = 900.0


def write_servers(folder: Path, count: int) -> None:
    """Deal the real tools out to the servers of a server file, under unique names, so that the gateway renames none."""
    listed = chain.from_iterable(listing.tools for _, listing in read_dumps(DUMPS))
    tools = [json.loads(tool.wire_json) for _, tool in zip(range(count), listed, strict=False)]
    entries = {}
    for number in range(SERVERS):
        path = folder / f"server{number}.json"
        part = [{**tool, "name": f"{tool['name']}_{number}_{at}"} for at, tool in enumerate(tools[number::SERVERS])]
        path.write_text(json.dumps(part), encoding="utf-8")
        entries[path.stem] = {"command": sys.executable, "args": [str(REPLAY_SERVER), str(path)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


async def run_gateway(folder: Path, encoder: str) -> None:
    started = time.perf_counter()
    options = {"encoder": encoder, "database": str(folder / "catalog.db"), "wait": LONGEST_START}
    async with Optimizer.from_config(folder / "mcp.json", **options) as optimizer:
        seconds = time.perf_counter() - started
        await optimizer.find("create a github issue")
        # Freed memory is returned to the system in the background.
        await asyncio.sleep(1)
        count, embedded = len(optimizer.snapshot.running), optimizer.ingestion.embedded
        print(f"{count:,} tools: {resident_mb():.0f} MB, ready in {seconds:.1f} s, {embedded:,} embedded", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--folder", type=Path, help="run one gateway with the servers of this folder, in this process")
    options = parser.parse_args()
    if options.folder:
        asyncio.run(run_gateway(options.folder, options.encoder))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_servers(Path(folder), options.tools)
        # The gateway runs in a process of its own, which holds nothing else.
        command = [sys.executable, "-m", "benchmarks.gateway.memory", "--encoder", options.encoder, "--folder", folder]
        for start in ("first start", "next start"):
            print(f"{start:12}", end="", flush=True)
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
