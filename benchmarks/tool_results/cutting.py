"""Processor time to cut a result of 200 kB to its limits.

    [PYTHONPATH=CHECKOUT/src] python -m benchmarks.tool_results.cutting [--rounds 5]

Run it in turns with the sources of two checkouts to compare them. The store takes everything at once, so only the work
on the result is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from typing import Any

from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.token_counter import TokenCounter

_WORDS = "alpha beta gamma delta issue pull request open closed merge branch customer invoice error timeout".split()


class _Store:
    async def keep(self, *_args: Any) -> bool:
        return True


def results(chosen: random.Random) -> dict[str, dict[str, Any]]:
    def words(count: int) -> list[str]:
        return chosen.choices(_WORDS, k=count)

    rows = [
        {"id": at, "title": " ".join(words(8)), "author": {"id": chosen.randrange(10**6)}, "body": " ".join(words(40))}
        for at in range(550)
    ]
    pretty = {"content": [{"type": "text", "text": json.dumps({"issues": rows}, indent=2)}]}
    compact = json.dumps({"issues": rows}, separators=(",", ":"))
    both = {"content": [{"type": "text", "text": compact}], "structuredContent": {"issues": rows}}
    lines = "\n".join(" ".join(words(15)) for _ in range(2_000))
    return {"JSON with blanks": pretty, "JSON and the same structure": both, "lines of text": _text(lines)}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    store: Any = _Store()
    for name, result in results(random.Random(1)).items():
        handling = Results(Estimator("auto", TokenCounter()), store)

        async def ask(result: dict[str, Any] = result) -> dict[str, Any]:
            return result

        await handling.answer(Call("server", "tool"), ask)
        taken = []
        for _ in range(rounds):
            started = time.process_time()
            await handling.answer(Call("server", "tool"), ask)
            taken.append(time.process_time() - started)
        size = len(result["content"][0]["text"]) / 1_000
        print(f"{name} ({size:.0f} kB): {1_000 * statistics.median(taken):.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
