"""A result of fifty megabytes through the gateway: how much it grows, and how long other calls wait.

    python -m benchmarks.large_results [--write]

Other calls go on all the time, to another server; how long they wait is compared with how long they wait without
the large one, in the same run, because a busy machine makes everybody wait. A call in the library is a call in the
gateway: the same process holds everything.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp_optimizer import Optimizer

RESULTS = Path(__file__).parent / "results" / "large_results.md"
SERVER = Path(__file__).parent / "large_server.py"
KINDS = ("lines", "json", "structured")
IDLE_SECONDS = 5.0


def memory(field: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at the most."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


class OtherCalls:
    """Calls one after the other, and remembers how long the slowest took, and the loop's longest stop."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self.slowest = self.longest_stop = 0.0
        self.count = 0

    async def calling(self) -> None:
        while True:
            started = time.perf_counter()
            await self._optimizer.call("echo", {"size": 1}, "small")
            self.slowest = max(self.slowest, (time.perf_counter() - started) * 1_000)
            self.count += 1
            await asyncio.sleep(0.005)

    async def watching(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.002)
            self.longest_stop = max(self.longest_stop, (time.perf_counter() - started) * 1_000 - 2)

    def reset(self) -> None:
        self.slowest = self.longest_stop = 0.0
        self.count = 0


async def measure(kind: str, config: Path, database: Path) -> str:
    options: dict[str, Any] = {"database": str(database), "encoder": "none", "history": False, "call_timeout": 300}
    async with Optimizer.from_config(config, **options) as optimizer:
        others = OtherCalls(optimizer)
        await optimizer.call("echo", {"size": 1}, "small")
        tasks = [asyncio.create_task(others.calling()), asyncio.create_task(others.watching())]
        await asyncio.sleep(IDLE_SECONDS)
        idle = (others.slowest, others.longest_stop)
        others.reset()
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        started = time.perf_counter()
        result = await optimizer.call(kind, {"size": 50_000_000}, "large")
        taken = time.perf_counter() - started
        growth = memory("VmHWM") - before
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
        about = result["_meta"]["mcp-optimizer/result"]
        started = time.perf_counter()
        await optimizer.read_result(about["resultId"], about["total"] // 2)
        page = (time.perf_counter() - started) * 1_000
    cells = [kind, f"{taken:.1f} s", f"{growth:.0f} MB ({growth / 50:.1f} x)"]
    cells += [f"{others.slowest:.0f} ms of {others.count}", f"{idle[0]:.0f} ms"]
    cells += [f"{others.longest_stop:.0f} ms", f"{idle[1]:.0f} ms", f"{page:.0f} ms"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        entry = {"command": sys.executable, "args": [str(SERVER)]}
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"large": {**entry, "timeout": 300}, "small": entry}}))
        lines = [
            "# Results of fifty megabytes",
            "",
            "The text of `lines` is plain, that of `json` is JSON with quotes to unescape; `structured` is half "
            "text and half the same as structured content, which has to be held as objects.",
            "",
            "| result | took | gateway grew by | slowest other call | the same without | longest stop of the loop "
            "| the same without | a page from the middle |",
            f"|{'---|' * 8}",
        ]
        for kind in [options.kind] if options.kind else KINDS:
            lines.append(asyncio.run(measure(kind, config, Path(folder) / f"{kind}.db")))
            print(lines[-1])
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
