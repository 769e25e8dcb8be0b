"""How soon sixteen good servers are usable, alone and beside four bad ones.

    python -m benchmarks.containment.bad_servers

Part of `make bench`. Both in one run, and how soon the gateway itself answers tools/list.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client, StdioServerParameters
from tests.e2e.test_upstream_failures import BAD, GOOD, ready_times


async def first_answer(config: Path) -> float:
    """Seconds from starting the process to its response to tools/list."""
    arguments = ["-m", "mcp_optimizer", "serve", "--alone", "--config", str(config), "--database", "none"]
    started = time.monotonic()
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        await client.list_tools()
        return time.monotonic() - started


async def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone, together = Path(folder) / "alone.json", Path(folder) / "together.json"
        alone.write_text(json.dumps({"mcpServers": GOOD}))
        together.write_text(json.dumps({"mcpServers": BAD | GOOD}))
        for label, config in (("16 good servers alone", alone), ("beside 4 bad ones", together)):
            times = sorted((await ready_times(config)).values())
            print(f"{label:30}{statistics.median(times):9.2f} s median, {times[-1]:.2f} s last")
        print(f"{'tools/list answered after':30}{await first_answer(together):9.2f} s (target < 2)")


if __name__ == "__main__":
    asyncio.run(main())
