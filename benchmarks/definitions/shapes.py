"""What it costs to say what a tool returns: tokens of the shapes of results.

    python -m benchmarks.definitions.shapes

Declared shapes come from the output schemas of the dumps. Learned ones come from calls of the demo servers' tools that
change nothing, without their schemas; those calls also show how long learning takes. Results are written to
`benchmarks/results/shapes.md`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.paths import RESULTS
from benchmarks.tools import dumped_tools
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.catalog.learned_shapes import LearnedShapes
from mcp_optimizer.compression.shape_sources import shape_of_schema
from mcp_optimizer.compression.shapes import described, without_envelope, written
from mcp_optimizer.domain.json_schema import required_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.results.result_texts import Reading, example
from mcp_optimizer.token_counter import TokenCounter

RESULT = RESULTS / "shapes.md"

ARGUMENTS: dict[str, Sequence[Any]] = {
    "url": ("https://pages.example/bees", "https://pages.example/glaciers"),
    "other_url": ("https://pages.example/glaciers", "https://pages.example/bees"),
    "query": ("report", "water"),
    "phrase": ("the", "a"),
    "keyword": ("name", "id"),
    "tableName": ("products", "orders"),
    "queryDescription": ("SELECT * FROM products LIMIT 3", "SELECT * FROM products LIMIT 5"),
}
"""Two values for each required argument of the demo servers; the ids of others are 1 and 2."""

EXAMPLES = (
    ("py__nextcloud-mcp-server", "deck_get_stacks"),
    ("smartbear__mcp", "zephyr_get_projects"),
    ("py__wikipedia-mcp", "wikipedia_get_coordinates"),
    ("py__mcp-email-server", "list_mailboxes"),
)


def declared() -> dict[tuple[str, str], str]:
    """The shapes that the dumps' output schemas declare."""
    tools = [(server, tool) for server, tool in dumped_tools() if tool.output_schema is not None]
    return {(server, tool.name): described(shape_of_schema(tool.output_schema), None) for server, tool in tools}


async def no_database() -> None:
    return None


async def learned() -> tuple[dict[str, str], list[float]]:
    """The shapes learned from results of the demo servers, and the milliseconds that learning each result took."""
    shapes, milliseconds = LearnedShapes(no_database, 1_000), list[float]()
    async with Optimizer.from_config(demo=True, database="none", encoder="none", max_tokens=0, max_rows=0) as optimizer:
        tools = [tool.definition for tool in optimizer.gateway.snapshot.running]
        tools = [tool for tool in tools if (tool.annotations or {}).get("readOnlyHint")]
        # The second time, the tools that look something up find what the first time loaded.
        for number in (0, 1, 0, 1):
            for tool in tools:
                result = await called(optimizer, tool, number)
                if result is not None:
                    started = time.thread_time()
                    shapes.learn(tool.name, partial(example, Reading(result)))
                    milliseconds.append((time.thread_time() - started) * 1_000)
    found = {tool.name: shapes.of(tool.name) for tool in tools}
    texts = {name: written(without_envelope(shape)) for name, shape in found.items() if shape is not None}
    return texts, milliseconds


async def called(optimizer: Optimizer, tool: McpTool, number: int) -> dict[str, Any] | None:
    arguments = {name: ARGUMENTS.get(name, (1, 2))[number] for name in required_of(tool.input_schema)}
    try:
        result = await optimizer.call(tool.name, arguments)
    except OptimizerError:
        return None
    return None if result.get("isError") else result


def row(name: str, texts: Sequence[str], counter: TokenCounter) -> str:
    tokens = sorted(counter.count_many(texts))
    ninth = tokens[int(len(tokens) * 0.9)]
    return f"| {name} | {len(tokens):,} | {statistics.median(tokens):.0f} | {ninth} | {tokens[-1]} |"


def report(shapes: dict[tuple[str, str], str], taught: dict[str, str], milliseconds: Sequence[float]) -> str:
    counter = TokenCounter()
    telling = [text for text in shapes.values() if "{" in text and text != "[{...}]"]
    full = [text for text in telling if "..." in text]
    lines = [
        "# What it costs to say what a tool returns",
        "",
        "Measured with `python -m benchmarks.definitions.shapes`: tokens (cl100k_base) of the shapes of results. Of",
        f"{len(shapes):,} tools of the dumps with an output schema, {len(telling):,} declare keys or maps; the others",
        "say `str`, `[{...}]`, or nothing, and their shapes are learned from results. The demo servers' shapes are",
        "learned from calls alone, without their schemas.",
        "",
        "| shapes | tools | median | 90 % | maximum |",
        "|---|---:|---:|---:|---:|",
        row("declared keys", telling, counter),
        row("declared keys, more than there is room for", full, counter),
        row("learned from the demo servers", list(taught.values()), counter),
        "",
        f"Learning from a result took {statistics.median(milliseconds):.2f} ms (median), at most "
        f"{max(milliseconds):.2f} ms,",
        f"over {len(milliseconds)} results. After five results of a tool, nothing is learned any more.",
        "",
        "```",
        *(f"{name} -> {shapes[server, name]}" for server, name in EXAMPLES),
        *(f"{name} -> {taught[name]}" for name in ("list_cards", "get_board", "list_users", "web_search")),
        "```",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    text = report(declared(), *asyncio.run(learned()))
    RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
