"""What a find_tool reply costs at each level of detail, compared with FastMCP's search.

    FASTMCP_PYTHON=/path/to/python python -m benchmarks.definitions.replies [--requests N]

Takes requests from ../shared/data/retrieval/dev and searches the catalog of all dumps. A reply has at most five tools,
and its cost is that of the whole text that the model reads. Of the text in signatures it also counts how many tools are
shown and not only named, and how many of their required parameters are there. FastMCP ranks with its own BM25 search,
in an environment of its own; only with it, the results are written to `benchmarks/results/replies.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.paths import DATA, DUMPS, FASTMCP_SEARCH, RESULTS
from benchmarks.tools import dumped_tools
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.json_schema import required_of
from mcp_optimizer.gateway.found_tools import FoundTools
from mcp_optimizer.serving.own_tools import find_reply
from mcp_optimizer.token_counter import TokenCounter

RESULT = RESULTS / "replies.md"
LIMIT = 5
FASTMCP = "FastMCP 4 search"


def requests(count: int) -> list[str]:
    lines = [line for path in sorted((DATA / "retrieval" / "dev").glob("*/queries.jsonl")) for line in path.open()]
    return [json.loads(line)["query"] for line in random.Random(7).sample(lines, count)]


@dataclass
class Shown:
    """What the texts say: how many tools are shown, and how many required parameters they have and show."""

    tools: int = 0
    named: int = 0
    required: int = 0
    written: int = 0

    def add(self, found: FoundTools) -> None:
        blocks = found.text.replace("\n ", "\r ").split("\n")
        for hit in found.tools:
            name = re.escape(hit.tool.name)
            block = next((block for block in blocks if re.match(rf"{name}(?:\(| \[)", block)), None)
            self.tools += block is not None
            self.named += block is None
            required = required_of(hit.tool.record.details.input_schema) if block is not None else []
            self.required += len(required)
            self.written += sum(parameter in str(block) for parameter in required)

    def sentence(self) -> str:
        return (
            f"In signatures {self.tools:,} of {self.tools + self.named:,} tools are shown, the others named; of the "
            f"{self.required:,} parameters that the shown ones require, {self.written:,} are in the text."
        )


async def ours(queries: Sequence[str], counter: TokenCounter) -> tuple[dict[str, list[int]], Shown]:
    """Tokens of whole replies by level of detail, and what the signatures show."""
    optimizer = Optimizer.from_dumps(DUMPS, load_settings({"encoder": "static"}, environment={}))
    optimizer.start()
    await optimizer.wait_for_servers(600)
    sizes: dict[str, list[int]] = {}
    shown = Shown()
    # Where scripts are off, as here, no reply is written in Python.
    for detail in (Detail.SIGNATURE, Detail.SCHEMA, Detail.FULL):
        found = [optimizer.gateway.find(query, "", LIMIT, detail) for query in queries]
        sizes[detail.value] = counter.count_many([find_reply(one)["content"][0]["text"] for one in found])
        for one in found if detail is Detail.SIGNATURE else ():
            shown.add(one)
    await optimizer.stop()
    return sizes, shown


async def fastmcp(queries: Sequence[str], counter: TokenCounter, python: str) -> list[int]:
    """Tokens of what FastMCP's BM25 search tool returns for the same requests over the same tools."""
    tools = [tool for _, tool in dumped_tools()]
    listed = [{"name": t.name, "description": t.description or "", "inputSchema": t.input_schema} for t in tools]
    job = json.dumps({"tools": listed, "queries": queries, "limit": LIMIT})
    process = await asyncio.create_subprocess_exec(
        python, str(FASTMCP_SEARCH), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(job.encode())
    # Its search tool returns the definitions "in the same format as list_tools", as compact JSON.
    rankings = json.loads(out)["rankings"]
    return counter.count_many([f"[{','.join(tools[at].model_dump_json() for at in found)}]" for found in rankings])


def report(rows: Mapping[str, Sequence[int]], requested: int, shown: Shown) -> str:
    whole = statistics.median(rows.get(FASTMCP, rows["full"]))
    lines = [
        "# What a find_tool reply costs",
        "",
        f"Measured with `python -m benchmarks.definitions.replies`: {requested} requests of the dev sets against the",
        f"catalog of all dumps, at most {LIMIT} tools a reply; tokens (cl100k_base) of the whole text that the model",
        "gets. Searched with the static encoder; FastMCP searches with its BM25.",
        "",
        "| reply | median | mean | below FastMCP's median |",
        "|---|---:|---:|---:|",
    ]
    for label, sizes in rows.items():
        median = statistics.median(sizes)
        lines.append(
            f"| {label} | {median:,.0f} | {statistics.mean(sizes):,.0f} | {100 * (1 - median / whole):.1f} % |"
        )
    return "\n".join([*lines, "", shown.sentence(), ""])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    counter = TokenCounter()
    queries = requests(options.requests)
    python = os.environ.get("FASTMCP_PYTHON")
    theirs = asyncio.create_task(fastmcp(queries, counter, python)) if python else None
    rows, shown = await ours(queries, counter)
    if theirs is not None:
        rows[FASTMCP] = await theirs
    text = report(rows, len(queries), shown)
    if theirs is not None:
        RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    asyncio.run(main())
