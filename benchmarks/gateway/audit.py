"""What the audit costs a call: the recording alone, and calls with the audit on and off.

    python -m benchmarks.gateway.audit [--rounds 30] [--calls 400]

Calls with and without it take turns in one run, so that other load on the machine affects them alike. Absolute times
depend on the machine; of the calls, the ratio counts.
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

from benchmarks.gateway.recording import call_many, compared
from benchmarks.paths import PLAIN_SERVER
from mcp_optimizer import Optimizer
from mcp_optimizer.access.audit.audit_file import AuditOptions
from mcp_optimizer.access.audit.recording import recording
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import Caller

AT_ONCE = 100


async def alone(folder: Path, rounds: int) -> None:
    """Arguments of 800 characters and a result of 2,000."""
    trail = AuditTrail(AuditOptions(file=folder / "alone.jsonl"), None)
    trail.start()
    arguments = {"title": "x" * 200, "labels": ["a", "b"], "body": {"text": "y" * 500, "number": 7}}
    result = {"content": [{"type": "text", "text": "z" * 2_000}], "_meta": {"tokens": {"estimated": 500}}}
    caller = Caller("bench", "bench")
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(AT_ONCE):
            with recording(trail, caller, "tools/call") as record:
                record.about("github", "create_issue", "d" * 64, arguments)
                record.result(result)
        taken.append((time.perf_counter() - started) / AT_ONCE * 1e6)
        await asyncio.sleep(0)
    await trail.stop()
    print(f"recording: µs a call, fastest and median {min(taken):6.1f} {statistics.median(taken):6.1f}   (target < 50)")


async def in_calls(folder: Path, rounds: int, calls: int) -> None:
    config = folder / "mcp.json"
    entry = {"command": sys.executable, "args": [str(PLAIN_SERVER), "plain"]}
    config.write_text(json.dumps({"mcpServers": {"plain": entry}}), encoding="utf-8")
    with_it = Optimizer.from_config(config, database=str(folder / "on" / "c.db"), encoder="none", history=False)
    without = Optimizer.from_config(
        config, database=str(folder / "off" / "c.db"), encoder="none", history=False, audit=False
    )
    async with with_it, without:
        off, wall, own = await compared(lambda: call_many(with_it, calls), lambda: call_many(without, calls), rounds)
    print(f"library: calls a second, without the audit   {calls / off:8,.0f}")
    print(f"library: time, with it against without       {wall:8.3f}   (processor time {own:.3f})")


async def main(rounds: int, calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await alone(Path(folder), rounds)
        await in_calls(Path(folder), rounds, calls)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=400)
    options = parser.parse_args()
    asyncio.run(main(options.rounds, options.calls))
