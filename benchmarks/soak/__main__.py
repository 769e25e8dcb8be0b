"""A long run at half load while servers are killed and clients leave during calls.

    python -m benchmarks.soak [--seconds 900] [--no-hostile] [--write]

What must hold: every call gets its result or an error that says what happened; a call with a result happened exactly
once, and no call happened twice; memory at the end is what it was at the beginning; no child process and no task is
left over. Two of the servers are hostile, one on stdio and one over HTTP: they show one hostile input after another
(`tests/hostile`), and are called as well. Another server answers with tasks, which clients ask for, wait for or cancel.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.soak.result import RESULT, write_part
from benchmarks.soak.run import Soak

_GROWTH = 1.05


def problems(soak: Soak, *, check_memory: bool) -> list[str]:
    log, executed = soak.log, soak.executed()
    twice = [number for number, times in executed.items() if times > 1]
    never = [number for number in log.answered if number not in executed]
    first, last = soak.thirds()
    found = {
        f"{len(log.lost)} calls were never answered": log.lost,
        f"{len(log.wrong)} calls got another's answer": log.wrong,
        f"{len(twice)} calls happened twice": twice,
        f"{len(never)} calls were answered and never happened": never,
        f"{len(soak.honest)} children instead of 2, beside the hostile one": len(soak.honest) != 2,
        f"{len(soak.server_tasks.log.lost)} tasks of servers were lost": soak.server_tasks.log.lost,
        f"{len(soak.server_tasks.log.wrong)} tasks of servers had another's result": soak.server_tasks.log.wrong,
        "no task of a server ended": not soak.server_tasks.log.ended,
        "no hostile input was shown": soak.is_hostile and not soak.shown,
        f"{len(soak.left_over)} children outlived the gateway": soak.left_over,
        f"tasks grew from {soak.tasks[0]} to {soak.tasks[1]}": soak.tasks[1] > soak.tasks[0] + 10,
        f"memory grew from {first:.1f} to {last:.1f} MB": check_memory and last > first * _GROWTH,
    }
    return [text for text, is_so in found.items() if is_so]


def describe(soak: Soak, seconds: float) -> str:
    log, (first, last) = soak.log, soak.thirds()
    told = ", ".join(f"{count} x {text!r}" for text, count in log.told.most_common(6))
    return "\n".join(
        [
            f"{seconds:.0f} s at {soak.rate:.0f} calls/s (half of the maximum), 8 clients of both eras, "
            "2 stdio servers and one over HTTP",
            f"- answered: {len(log.answered):,}, each executed exactly once; told of a failure: "
            f"{sum(log.told.values())} ({told or 'none'}); lost: {len(log.lost)}; wrong: {len(log.wrong)}",
            f"- tasks of a server: {_counted(soak.server_tasks.log.ended)}; lost: {len(soak.server_tasks.log.lost)}; "
            f"wrong: {len(soak.server_tasks.log.wrong)}",
            f"- hostile inputs shown by 2 servers among the others: {len(soak.shown)} different ones, "
            f"{sum(soak.shown.values()):,} times",
            f"- servers killed: {log.kills}; clients that left in the middle of a call: {log.left}",
            f"- memory, mean of each tenth: {', '.join(f'{mean:.0f}' for mean in soak.tenths())} MB",
            f"- memory: first third {first:.1f} MB, last third {last:.1f} MB ({100 * (last / first - 1):+.1f} %)",
            f"- tasks before and after: {soak.tasks[0]}, {soak.tasks[1]}; children at the end: {len(soak.children)}; "
            f"left over after the stop: {len(soak.left_over)}",
        ]
    )


def _counted(ended: Counter[str]) -> str:
    return ", ".join(f"{count:,} {how}" for how, count in sorted(ended.items()))


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--no-hostile", action="store_true", help="leave the hostile servers out")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), options.seconds, is_hostile=not options.no_hostile)
        await soak.run()
        text = describe(soak, options.seconds)
        # A short run ends before memory has settled.
        found = problems(soak, check_memory=options.seconds >= 300)
    lost = soak.server_tasks.log
    print(text, *found, *soak.log.lost[:5], *lost.lost[:5], *lost.wrong[:5], sep="\n", flush=True)
    if options.write:
        verdict = "Nothing lost, nothing twice, nothing left over." if not found else "\n".join(found)
        write_part("One gateway, whose servers are killed", "python -m benchmarks.soak", f"{text}\n\n{verdict}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
