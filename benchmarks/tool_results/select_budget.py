"""What `select` costs within its budget, and what hostile expressions achieve.

    python -m benchmarks.tool_results.select_budget [--write]

Compares where an expression can run: on the event loop, in a thread, in a warm process and in a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import jmespath

from benchmarks.paths import RESULTS
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.result_texts import size_of
from mcp_optimizer.results.selecting import Selecting

RESULT = RESULTS / "select_budget.md"

USUAL = "items[?id > `2`].{id: id, name: name, mail: email}"
SIZES = (10, 100, 1_000, 10_000)

HOSTILE: dict[str, tuple[str, Any]] = {
    "`[@,@]` piped 16 times": ("|".join(["[@,@]"] * 16), 1),
    "`[@,@]` piped 24 times": ("|".join(["[@,@]"] * 24), 1),
    "`[@,@]` piped 28 times": ("|".join(["[@,@]"] * 28), 1),
    "the same, compared with itself": ("[{0}, {0}] | [0] == [1]".format("|".join(["[@,@]"] * 28)), 1),
    "`to_string` of it": ("|".join(["[@,@]"] * 28) + "|to_string(@)", 1),
    "`join` of 10 GB": ("join(a, b)", {"a": "x" * 90_000, "b": ["y"] * 90_000}),
    "`sort` of long texts": ("sort(@)", ["a" * 40_000 + "b", "a" * 40_000 + "c"] * 10),
    "900 columns of 2,000 rows": ("[].[" + ",".join("@" * 900) + "]", [1] * 2_000),
    "600 kB of expression": ("a" + ".a" * 300_000, {}),
    "900 pipes": ("|".join("a" * 900), {}),
}


HEAD = (
    "`python -m benchmarks.tool_results.select_budget`",
    "",
    "Milliseconds, the best of several: how long one took / the longest for which nothing else could run. Two",
    "cores, busy with other work. In a thread, other calls wait for moments only. A process that is kept warm would",
    "spare the start of a new one (0.3 s on an idle machine) where an expression takes more than 100,000 steps, and",
    "hold 40 MB for that all the time.",
)


def table(rows: int) -> dict[str, Any]:
    names = [
        {"id": at, "name": f"Person {at}", "email": f"person{at}@example.com", "age": at % 90} for at in range(rows)
    ]
    return {"items": names}


async def timed(work: Callable[[], Awaitable[Any]], times: int = 5) -> tuple[float, float]:
    """Milliseconds, the best of several runs: how long it took, and the longest time in which nothing else ran."""
    found = []
    for _ in range(times):
        longest = 0.0
        started = last = time.perf_counter()
        task = asyncio.ensure_future(work())
        while not task.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        task.result()
        found.append(((time.perf_counter() - started) * 1_000, longest * 1_000))
    return min(taken for taken, _ in found), min(longest for _, longest in found)


class WarmProcess:
    """A process that has loaded everything and waits, to see what a warm worker would cost."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def started(cls) -> WarmProcess:
        code = (
            "import json, sys\nfrom mcp_optimizer.results.projection import Projection\n"
            "for line in sys.stdin.buffer:\n"
            "    expression, value = json.loads(line)\n"
            "    sys.stdout.write(json.dumps(Projection(expression).text_of(value)) + '\\n')\n"
            "    sys.stdout.flush()\n"
        )
        pipe, most = asyncio.subprocess.PIPE, 1 << 26
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe, limit=most)
        return cls(process)

    async def select(self, text: bytes) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"[" + json.dumps(USUAL).encode() + b"," + text + b"]\n")
        await self._process.stdout.readline()

    async def end(self) -> None:
        self._process.kill()
        await self._process.wait()


async def places() -> list[str]:
    """Times of the usual expression in each place, by number of rows."""
    lines = ["| rows | bytes | on the loop | in a thread | warm process | new process |", "|---|---|---|---|---|---|"]
    warm, projection, selecting = await WarmProcess.started(), Projection(USUAL), Selecting()
    for rows in SIZES:
        text = json.dumps(table(rows)).encode()

        def apply(text: bytes = text) -> str:
            return projection.text_of(json.loads(text))

        async def inline(apply: Callable[[], str] = apply) -> str:
            return apply()

        async def fed(text: bytes = text) -> AsyncIterator[bytes]:
            yield text

        ways: list[Callable[[], Awaitable[Any]]] = [
            inline,
            lambda apply=apply: asyncio.to_thread(apply),  # type: ignore[misc]
            lambda text=text: warm.select(text),  # type: ignore[misc]
            lambda fed=fed, text=text: selecting.select(projection, len(text), fed),  # type: ignore[misc]
        ]
        await warm.select(text)
        measured = [await timed(way) for way in ways]
        cells = " | ".join(f"{taken:,.1f} / {longest:,.1f}" for taken, longest in measured)
        lines.append(f"| {rows:,} | {len(text):,} | {cells} |")
    await warm.end()
    return lines


def counting() -> list[str]:
    """What counting the steps costs."""
    value, plain, counted = table(10_000), jmespath.compile(USUAL), Projection(USUAL)

    def best(work: Callable[[], Any]) -> float:
        found = []
        for _ in range(7):
            started = time.perf_counter()
            work()
            found.append(time.perf_counter() - started)
        return min(found) * 1_000

    without, within = best(lambda: plain.search(value)), best(lambda: counted.of(value))
    return [f"jmespath alone takes {without:.1f} ms for 10,000 rows, within a budget {within:.1f} ms."]


async def hostile() -> list[str]:
    lines = ["| expression | took (ms) | others waited (ms) | memory rose (MB) | answer |", "|---|---|---|---|---|"]
    selecting = Selecting()
    for name, (expression, value) in HOSTILE.items():
        answer = ""

        async def fed(value: Any = value) -> AsyncIterator[bytes]:
            yield json.dumps(value).encode()

        async def apply(expression: str = expression, value: Any = value, fed: Any = fed) -> None:
            nonlocal answer
            try:
                size = len(json.dumps(value))
                selection = await selecting.select(Projection(expression), size, fed, lambda: value)
                answer = f"{size_of(selection.text):,} characters"
            except InvalidRequest as error:
                answer = str(error).split(". ")[0]

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken, longest = await timed(apply, 3)
        rose = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_000
        lines.append(f"| {name} | {taken:,.0f} | {longest:,.0f} | {rose:,.0f} | {answer} |")
    return lines


async def measure() -> str:
    lines = ["# What `select` costs within its budget", "", *HEAD, "", f"`{USUAL}`", ""]
    lines += [*await places(), "", *counting(), "", "## Expressions that want to take everything", ""]
    lines += ["In a thread for the first 100,000 steps, then in a new process; memory is that of the gateway.", ""]
    return "\n".join([*lines, *await hostile(), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    report = asyncio.run(measure())
    print(report)
    if options.write:
        RESULT.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
