"""Attacks a gateway: python -m tests.hostile [--count 50000] [--seed 1] [--write], or --named [--only TEXT].

The first form sends this many randomly changed messages, as servers and as clients; `--write` saves the result in
benchmarks/results/hostile.md. The second form tries every named input on each of its transports.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.conftest import ROOT
from tests.hostile.campaign import Campaign
from tests.hostile.client_inputs import CLIENT_INPUTS
from tests.hostile.inputs import INPUTS
from tests.hostile.named import run_named

RESULT = ROOT / "benchmarks" / "results" / "hostile.md"


def describe(campaign: Campaign) -> str:
    kinds = campaign.kinds()
    first, peak, last = campaign.memory[0], max(campaign.memory), campaign.memory[-1]
    problems = Counter(problem.partition(":")[0] for problem in campaign.problems)
    by_sender: Counter[str] = Counter()
    by_change: Counter[str] = Counter()
    for kind, count in kinds.items():
        sender, _, change = kind.rpartition(" ")
        by_sender[sender.rpartition(" ")[0] or change] += count
        by_change.update(dict.fromkeys(change.split("+"), count))
    changes = ", ".join(f"{change} {count:,}" for change, count in by_change.most_common())
    return "\n".join(
        [
            f"{sum(kinds.values()):,} changed messages in {campaign.seconds:.0f} s, seed {campaign.seed}. "
            f"Beside them there are {len(INPUTS)} named inputs of servers and {len(CLIENT_INPUTS)} of clients.",
            "",
            f"- witness calls: {campaign.witness_calls:,}, each followed by a search; the longest took "
            f"{campaign.longest_wait:.2f} s",
            f"- longest stop of the event loop: {1_000 * campaign.longest_stop:.0f} ms",
            f"- memory: {first:.0f} MB at first, {peak:.0f} MB at the most, {last:.0f} MB at the end",
            f"- changes: {changes}",
            f"- problems: {', '.join(f'{count} x {text}' for text, count in problems.most_common()) or 'none'}",
            "",
            "| sent by | messages |",
            "|---|---|",
            *(f"| {sender} | {count:,} |" for sender, count in sorted(by_sender.items())),
        ]
    )


async def attack(count: int, seed: int, *, write: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(count, seed, Path(folder))
        await campaign.run(lambda text: print(text, end="    \r", file=sys.stderr, flush=True))
        text = describe(campaign)
    print(text)
    if campaign.problems:
        print(f"\nseed {seed}:", *campaign.problems[:20], "the last messages of clients:", *campaign.recent, sep="\n")
    if write:
        verdict = "Not one witness call lost, not one death." if not campaign.problems else "There were problems."
        command = f"`python -m tests.hostile --count {count} --seed {seed}`"
        RESULT.write_text(f"# Hostile messages\n\n{command}\n\n{text}\n\n{verdict}\n", encoding="utf-8")
    return 1 if campaign.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULT.name}")
    parser.add_argument("--named", action="store_true", help="every named input of servers on each of its transports")
    parser.add_argument("--only", default="", help="with --named: those whose name contains this")
    parser.add_argument("--wire", default="", help="with --named: on this transport")
    parser.add_argument("--slow", action="store_true", help="with --named: also those that take many seconds")
    options = parser.parse_args()
    if options.named:
        return asyncio.run(run_named(options.only, options.wire, slow=options.slow))
    return asyncio.run(attack(options.count, options.seed, write=options.write))


if __name__ == "__main__":
    sys.exit(main())
