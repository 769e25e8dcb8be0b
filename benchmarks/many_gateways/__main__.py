"""A long run over three gateways behind HAProxy, of which one is killed every minute.

    python -m benchmarks.many_gateways [--minutes 30] [--short] [--write]

PostgreSQL, `deploy/haproxy.cfg` without stickiness, and clients of both eras that call, read the rests of cut results,
find, write, read what they wrote, come and go. Besides the deaths: all gateways are restarted in turn, one is paused
for 12 s, and the database is stopped, restarted, full and without connections. `--short` is for CI: every fault once or
twice in half a minute, except a full database.

What must hold: only requests that a killed gateway had in progress are lost; no call happens twice; every rest can be
read at every gateway, except of results that were cut while the database was away by a gateway that was killed before
it was back; nobody else waits over 2 s, except those whom HAProxy sent to a paused gateway before it noticed; a gateway
that lives long grows neither in memory nor in file descriptors. How long a gateway, HAProxy and the clients stand in
line for a processor is measured all the time, and does not count as a wait.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import haproxy_program
from tests.postgres import find_programs

from benchmarks.many_gateways.faults import Plan
from benchmarks.many_gateways.ledger import Harm, Ledger, Outcome, Seen, Verdict, by_itself, judged, problems
from benchmarks.many_gateways.run import Run, thirds
from benchmarks.soak.result import RESULT, write_part

_SHORT = Plan(whole=0, paused=4, away=2.5)


def describe(run: Run) -> str:
    ledger, verdict = run.ledger, judged(run.ledger)
    faults = Counter(fault.what or fault.harm.value for fault in ledger.faults)
    done = ", ".join(f"{what} {count}" for what, count in sorted(faults.items()))
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    lines = [
        f"{run.seconds:.0f} s, {len(ledger.seen) / run.seconds:.0f} requests/s of 17 clients, both eras, no "
        f"stickiness; load of the machine (2 cores) at the end: {load}",
        f"- faults: {done}",
        f"- answered: {_count(ledger, Outcome.ANSWERED):,} of {len(ledger.seen):,} requests; notes taken exactly once: "
        f"{len(ledger.answered):,}",
        f"- lost with a killed gateway: {len(verdict.in_flight)}; lost otherwise: {len(verdict.lost)}; told of an "
        f"error without a reason: {len(verdict.told)}",
        f"- cut results: {len(ledger.rests):,}, read {sum(rest.reads for rest in ledger.rests):,} times; rests lost: "
        f"{len(verdict.lost_rests)}; lost because only a killed gateway had them while the database was away: "
        f"{len(verdict.held_in_memory)}; asked again because the database was away: {len(verdict.told_of_database)}",
        f"- stale reads after a write: {len(verdict.stale)}; while the database was away: "
        f"{len(verdict.stale_meanwhile)}",
        _waits(ledger, verdict),
    ]
    for name, life in run.lives():
        (before, after), (files, more) = thirds(life)
        lines.append(
            f"- {name} lived for {(life[-1].at - life[0].at) / 60:.0f} minutes: {before:.1f} MB in the first third and "
            f"{after:.1f} in the last ({100 * (after / before - 1):+.1f} %); {files:.0f} and {more:.0f} file "
            "descriptors"
        )
    return "\n".join(lines)


def _waits(ledger: Ledger, verdict: Verdict) -> str:
    apart = {id(one) for one in (*verdict.in_flight, *verdict.paused)}
    others = [one for one in ledger.seen if id(one) not in apart]
    waited, alone = sorted(one.waited for one in others), max(by_itself(ledger, one) for one in others)
    noticed = [
        one.began - fault.began
        for fault in ledger.faults
        if fault.harm is Harm.PAUSED
        for one in verdict.paused
        if ledger.gateway(one) == fault.gateway and fault.began <= one.began <= fault.ended
    ]
    return (
        f"- waits: p50 {1e3 * statistics.median(waited):.0f} ms, 99.9 % {1e3 * waited[int(len(waited) * 0.999)]:.0f} "
        f"ms, longest {waited[-1]:.2f} s, without standing in line for a processor {alone:.2f} s; over 2 s without "
        f"that: {len(verdict.late)}; sent to a paused gateway: {len(verdict.paused)}, the last "
        f"{max(noticed, default=0):.1f} s after it was paused"
    )


def _count(ledger: Ledger, outcome: Outcome) -> int:
    return sum(one.outcome is outcome for one in ledger.seen)


def examples(ledger: Ledger, verdict: Verdict) -> list[str]:
    """A few of each kind of what must not be, and of what was lost, for whoever looks for the reason."""
    first = ledger.seen[0].began

    def told(title: str, some: Sequence[Seen]) -> list[str]:
        return [
            f"  {title}: {one.kind} at {ledger.gateway(one) or 'no gateway'}, {one.began - first:.1f} s after the "
            f"beginning, waited {one.waited:.1f} s ({by_itself(ledger, one):.1f}): {one.outcome} {one.text}"
            for one in some[:8]
        ]

    timeline = "; ".join(
        f"{fault.began - first:.1f}-{fault.ended - first:.1f} {fault.gateway} {fault.what or fault.harm}"
        for fault in sorted(ledger.faults, key=lambda fault: fault.began)
    )
    kinds = Counter(f"{one.kind}: {one.text[:60]}" for one in verdict.told_of_database)
    return [
        f"  faults: {timeline}",
        *told("lost", verdict.lost),
        *told("error", verdict.told),
        *told("late", verdict.late),
        *told("stale", verdict.stale),
        *(f"  rest lost: {rest}" for rest in verdict.lost_rests[:8]),
        *(f"  wrong: {text}" for text in ledger.wrong[:8]),
        *(f"  told {count} times: {text}" for text, count in kinds.most_common(4)),
    ]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--short", action="store_true", help="half a minute, for CI")
    parser.add_argument("--write", action="store_true", help=f"write its part of {RESULT.name}")
    options = parser.parse_args()
    missing = [name for name, found in (("HAProxy", haproxy_program()), ("PostgreSQL", find_programs())) if not found]
    if missing:
        print(f"many_gateways: skipped, because there is no {' and no '.join(missing)}")
        return 0 if options.short else 1
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), _SHORT if options.short else Plan(whole=60 * options.minutes))
        await run.run(is_short=options.short)
    text, found = describe(run), problems(run.ledger, run.growth())
    print(text, *found, *examples(run.ledger, judged(run.ledger)), sep="\n", flush=True)
    if options.write:
        verdict = (
            "Lost only what killed gateways had in progress; nobody else waited." if not found else "\n".join(found)
        )
        write_part(
            "Three gateways, one killed every minute", "python -m benchmarks.many_gateways", f"{text}\n\n{verdict}"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
