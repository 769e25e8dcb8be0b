"""How far each method of estimating tokens is off, on real results and tool definitions.

    python -m benchmarks.tool_results.estimates --servers FOLDER [--write]

`benchmarks/tool_results/real_results.py` says what FOLDER holds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.paths import RESULTS
from benchmarks.tool_results.real_results import RealResult, real_results
from mcp_optimizer import TokenCounter
from mcp_optimizer.results.estimates import CHARACTERS_PER_TOKEN, COUNTED_EXACTLY, Estimator, Method, TextKind, kind_of

RESULT = RESULTS / "estimates.md"
ENCODINGS = ("cl100k_base", "o200k_base")
SIZES = (5_000, 50_000, 500_000, 5_000_000)


def errors(estimate: Callable[[str], float], texts: Sequence[str], counts: Sequence[int]) -> tuple[float, float, float]:
    """Median and 95th percentile of the error, and the median with its sign, in percent."""
    signed = [(estimate(text) - count) / count * 100 for text, count in zip(texts, counts, strict=True)]
    sizes = sorted(map(abs, signed))
    return statistics.median(sizes), sizes[int(len(sizes) * 0.95)], statistics.median(signed)


def estimated_by(method: str, encoding: str) -> Callable[[str], float]:
    estimator = Estimator(method, TokenCounter(encoding))
    return lambda text: estimator.estimate([text]).estimated


def row(name: str, *figures: tuple[float, float, float]) -> str:
    cells = [f"{median:.1f} % | {p95:.1f} % | {bias:+.1f} %" for median, p95, bias in figures]
    return f"| {name} | {' | '.join(cells)} |"


def table(results: Sequence[RealResult], title: str) -> list[str]:
    texts = [result.text for result in results]
    counts = {name: [TokenCounter(name).count_tokens(text) for text in texts] for name in ENCODINGS}
    lines = [f"## {title}", ""]
    lines += [
        "| method | cl100k: median | p95 | tendency | o200k: median | p95 | tendency |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in Method:
        # `auto` counts with the configured encoding: each column has its own.
        figures = [errors(estimated_by(method.value, name), texts, counts[name]) for name in ENCODINGS]
        lines.append(row(f"`{method.value}`", *figures))
    by_kind = [errors(lambda t: len(t) / CHARACTERS_PER_TOKEN[kind_of(t)], texts, counts[name]) for name in ENCODINGS]
    return [*lines, row("a calibrated ratio per kind", *by_kind), ""]


def milliseconds(work: Callable[[], object], times: int = 7) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000

    return statistics.median(once() for _ in range(times))


def durations(results: Sequence[RealResult]) -> list[str]:
    """What an estimate takes, by the size of the text and its kind."""
    auto = Estimator("auto", TokenCounter())
    everything = "\n".join(result.text for result in results)
    kinds = {"real results": everything, "one letter, no blanks": "a", "blanks": " ", "CJK": "漢字仮名交じり文を数える"}
    lines = ["## Time", "", "| text | characters | `auto` | counted |", "|---|---|---|---|"]
    for kind, unit in kinds.items():
        for size in SIZES:
            text = (unit * (size // len(unit) + 1))[:size]
            sampled = milliseconds(partial(auto.estimate, [text]))
            counted = milliseconds(partial(auto.estimate, [text], exactly=True), 1)
            lines.append(f"| {kind} | {size:,} | {sampled:.1f} ms | {counted:,.1f} ms |")
    return [*lines, ""]


def report(results: Sequence[RealResult]) -> str:
    counter = TokenCounter()
    long = [result for result in results if len(result.text) > COUNTED_EXACTLY]
    sources: defaultdict[str, list[str]] = defaultdict(list)
    kinds: defaultdict[TextKind, list[float]] = defaultdict(list)
    for result in results:
        sources[result.source].append(result.text)
        kinds[kind_of(result.text)].append(len(result.text) / counter.count_tokens(result.text))
    lines = [
        "# Errors of token estimates",
        "",
        f"{len(results)} results of real servers and real tool definitions (`python -m "
        "benchmarks.tool_results.estimates`), against what tiktoken counts. Tendency: the median with its sign.",
        "",
        *table(results, "All"),
        *table(long, f"The {len(long)} of more than {COUNTED_EXACTLY:,} characters, which `auto` does not count"),
        *durations(results),
        "## What they are",
        "",
        "| source | results | `auto`: median | p95 |",
        "|---|---|---|---|",
    ]
    auto = Estimator("auto", counter)
    for source, texts in sorted(sources.items()):
        counts = [counter.count_tokens(text) for text in texts]
        median, p95, _ = errors(lambda text: auto.estimate([text]).estimated, texts, counts)
        lines.append(f"| {source} | {len(texts)} | {median:.1f} % | {p95:.1f} % |")
    lines += ["", "| kind of text | results | characters per token, median |", "|---|---|---|"]
    lines += [f"| {kind} | {len(found)} | {statistics.median(found):.2f} |" for kind, found in sorted(kinds.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=Path, required=True, help="where the real servers are installed")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    text = report([result for result in asyncio.run(real_results(options.servers)) if result.text])
    print(text)
    if options.write:
        RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
