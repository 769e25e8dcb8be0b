"""How much time it takes to describe a small result: the pipeline's share of a call.

    python -m benchmarks.tool_results.overhead [--write]

The same small results with the pipeline, without it, and from the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.paths import RESULTS
from mcp_optimizer import TokenCounter
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.results.cache import ResultCache
from mcp_optimizer.results.calls import Call, ResultOptions, Treatment
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.result_store import ResultStore

RESULT = RESULTS / "result_overhead.md"
COMMAND = "`python -m benchmarks.tool_results.overhead`"
TIMES = 2_000

ROWS = [{"id": number, "name": f"Customer {number}", "email": f"customer{number}@example.com"} for number in range(50)]
READS = {"readOnlyHint": True, "openWorldHint": False}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "isError": False, **more}


SMALL: dict[str, dict[str, Any]] = {
    "a sentence": text("The file was written."),
    "a page of text, 2,000 characters": text("The quick brown fox jumps over the lazy dog.\n" * 44),
    "JSON, 1 row": text(json.dumps(ROWS[0]), structuredContent=ROWS[0]),
    "JSON, 10 rows": text(json.dumps({"items": ROWS[:10]}), structuredContent={"items": ROWS[:10]}),
    "JSON, 50 rows, pretty-printed": text(json.dumps(ROWS, indent=2)),
    "CSV, 50 rows": text("id,name,email\n" + "\n".join(",".join(map(str, row.values())) for row in ROWS)),
    "an image": {"content": [{"type": "image", "data": "A" * 20_000, "mimeType": "image/png"}]},
}


async def median(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Milliseconds, p50 and p95."""
    for _ in range(50):
        await work()
    taken = []
    for _ in range(TIMES):
        started = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - started) * 1_000)
    taken.sort()
    return statistics.median(taken), taken[int(len(taken) * 0.95)]


async def measure() -> str:
    database = await open_database(None)

    async def opened() -> KeptResults:
        return KeptResults(database)

    store = ResultStore(opened)
    plain = Results(Estimator("auto", TokenCounter()), store)
    cached = Results(
        Estimator("auto", TokenCounter()), store, ResultOptions(Treatment(cache_seconds=600)), ResultCache()
    )
    plain.count_tokens("x")
    lines = ["# What describing a small result costs", ""]
    lines += [f"{COMMAND}: milliseconds added to a call, {TIMES:,} calls each, one process.", ""]
    lines += ["| result | p50 | p95 | from the cache, p50 |", "|---|---|---|---|"]
    for name, result in SMALL.items():

        async def ask(result: dict[str, Any] = result) -> dict[str, Any]:
            return result

        call = Call("server", "tool", annotations=READS, arguments={"name": name})
        bare, _ = await median(ask)
        p50, p95 = await median(lambda call=call, ask=ask: plain.answer(call, ask))  # type: ignore[misc]
        again, _ = await median(lambda call=call, ask=ask: cached.answer(call, ask))  # type: ignore[misc]
        lines.append(f"| {name} | {p50 - bare:.3f} | {p95 - bare:.3f} | {again - bare:.3f} |")
    await database.close()
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    written = asyncio.run(measure())
    print(written)
    if options.write:
        RESULT.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
