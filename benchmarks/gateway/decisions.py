"""How long one decision takes among many rules, by the shape of the rules.

    python -m benchmarks.gateway.decisions [--rules 10000] [--calls 2000]

Every decision is cold: no call is decided twice, so the memory of earlier decisions never helps. Times are processor
time, so that other load does not count. The calls are of tools of the dumps, by ten callers; in each shape half of the
rules are made from names that exist. Results: `benchmarks/results/decisions.md`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.paths import DUMPS
from benchmarks.tools import dumped_tools
from mcp_optimizer.access.policy.policy import RuleBook
from mcp_optimizer.domain.caller import Effect, Principal, Risk, RiskClass, Rule

Name = tuple[str, str]
Shape = Callable[[int, str, str], Rule]

CALLERS = [Principal(str(number), f"corp:user{number}") for number in range(10)]
DENY = Effect.DENY


def unlike(number: int) -> str:
    """A pattern without a plain letter, unlike that of any other number, that few names end in."""
    return "".join("[q-z]" if bit == "1" else "?" for bit in f"{number:014b}") + "[xyz]"


SHAPES: dict[str, Shape] = {
    "literal server and tool": lambda n, server, tool: Rule(DENY, server=server, tool=f"{tool}_{n}"),
    "literal tool of one server": lambda n, _, tool: Rule(DENY, server="git", tool=f"{tool}_{n}"),
    "beginning of a tool": lambda n, _, tool: Rule(DENY, tool=f"{tool}{n}*"),
    "end of a tool": lambda n, _, tool: Rule(DENY, tool=f"*{n}{tool}"),
    "inside of a tool": lambda n, _, tool: Rule(DENY, tool=f"*{tool[1:]}{n}*"),
    "two stretches of a tool": lambda n, _, tool: Rule(DENY, tool=f"*{tool[:4]}*{n}*"),
    "literal caller": lambda n, _, tool: Rule(DENY, tool=f"{tool[:3]}*", caller=f"key:{n}"),
    "100 servers x 100 callers": lambda n, *_: Rule(DENY, server=f"s{n // 100}", caller=f"corp:user{n % 100}"),
    "class and beginning": lambda n, server, tool: Rule(DENY, server=server, tool=f"{tool[:6]}{n}*", risk=Risk.WRITE),
    "the same three letters everywhere": lambda n, *_: Rule(DENY, tool=f"*get*{unlike(n)}"),
    "no plain letter": lambda n, *_: Rule(DENY, tool=f"*{unlike(n)}"),
}


def measured(rules: Sequence[Rule], names: Sequence[Name], calls: int) -> tuple[float, list[float]]:
    """Seconds to read the rules, and for each decision."""
    chance = random.Random(7)
    began = time.thread_time()
    book = RuleBook(rules)
    built = time.thread_time() - began
    risk = RiskClass(Risk.READ, "name")
    asked = [(chance.choice(CALLERS), *chance.choice(names), number) for number in range(calls)]
    seconds = []
    for principal, server, tool, number in asked:
        own = f"{tool}{number}"
        began = time.thread_time()
        book.decide(principal, server, own, risk)
        seconds.append(time.thread_time() - began)
    return built, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=2_000)
    options = parser.parse_args()
    chance = random.Random(1)
    real = [(server, tool.name) for server, tool in dumped_tools()] if DUMPS.is_dir() else []
    names = real or [(f"server{number % 50}", f"get_thing_{number}") for number in range(5_000)]
    print("| rules | median ms | p99 ms | worst ms | reading the rules, s |")
    print("|---|---:|---:|---:|---:|")
    for title, shape in SHAPES.items():
        made_up = [(f"other{number}", f"do_{number}_things") for number in range(options.rules)]
        picked = [chance.choice(names) if number % 2 else made_up[number] for number in range(options.rules)]
        rules = [shape(number, *name) for number, name in enumerate(picked)]
        built, seconds = measured(rules, names, options.calls)
        seconds.sort()
        shown = (statistics.median(seconds), seconds[int(len(seconds) * 0.99)], seconds[-1])
        print(f"| {title} | {' | '.join(f'{value * 1_000:.4f}' for value in shown)} | {built:.2f} |")


if __name__ == "__main__":
    main()
