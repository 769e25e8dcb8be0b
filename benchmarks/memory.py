"""What a gateway's process holds with a catalog of N real tools, embedded; and how long embedding them took.

python -m benchmarks.memory [--tools N] [--encoder NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from mcp_optimizer.app import Optimizer
from mcp_optimizer.settings import load_settings

DUMPS = Path(__file__).parents[2] / "shared" / "data" / "mcp-tools"


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--encoder", default="bundled")
    options = parser.parse_args()
    settings = load_settings({"encoder": options.encoder}, environment={})
    print(f"empty                {resident_mb():8.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        left = options.tools
        for path in sorted(DUMPS.glob("*.json")):
            tools = json.loads(path.read_text(encoding="utf-8"))["tools"][:left]
            (Path(folder) / path.name).write_text(json.dumps(tools), encoding="utf-8")
            left -= len(tools)
            if not left:
                break
        optimizer = Optimizer.from_dumps(Path(folder), settings)
    started = time.perf_counter()
    optimizer.start()
    await optimizer.wait_for_servers(900)
    seconds = time.perf_counter() - started
    found = await optimizer.find("create a github issue")
    count, embedded = len(optimizer.snapshot.running), optimizer.ingestion.embedded
    print(f"{count:,} tools         {resident_mb():8.0f} MB, ready in {seconds:.1f} s, {embedded:,} embedded")
    print([tool.name for tool in found.tools])
    await optimizer.stop()


if __name__ == "__main__":
    asyncio.run(main())
