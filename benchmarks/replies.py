"""What a find_tool reply costs: tokens for signature, schema and full, beside what FastMCP's search returns.

FASTMCP_PYTHON=/path/to/python python -m benchmarks.replies [--requests N]

Requests from ../shared/data/retrieval/dev, against the catalog of all dumps; five tools a reply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
from pathlib import Path

from mcp_optimizer.app import Optimizer
from mcp_optimizer.db.models import McpTool
from mcp_optimizer.forms import Detail
from mcp_optimizer.server import find_response
from mcp_optimizer.settings import load_settings
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.dumps import read_dumps

DATA = Path(__file__).parents[2] / "shared" / "data"
LIMIT = 5


def dumped_tools() -> list[tuple[str, McpTool]]:
    return [(server, tool.parsed()) for server, listing in read_dumps(DATA / "mcp-tools") for tool in listing.tools]


def requests(count: int) -> list[str]:
    lines = [line for path in sorted((DATA / "retrieval" / "dev").glob("*/queries.jsonl")) for line in path.open()]
    return [json.loads(line)["query"] for line in random.Random(7).sample(lines, count)]


async def ours(queries: list[str], counter: TokenCounter) -> dict[str, list[int]]:
    """Tokens of whole replies, metrics and all, by detail."""
    optimizer = Optimizer.from_dumps(DATA / "mcp-tools", load_settings({"encoder": "static"}, environment={}))
    optimizer.start()
    await optimizer.wait_for_servers(600)
    sizes: dict[str, list[int]] = {detail.value: [] for detail in Detail}
    for query in queries:
        for detail in Detail:
            found = optimizer.gateway.find(query, "", LIMIT, detail)
            sizes[detail.value].append(counter.count_tokens(find_response(found).model_dump_json(exclude_none=True)))
    await optimizer.stop()
    return sizes


def fastmcp(queries: list[str], counter: TokenCounter, python: str) -> list[int]:
    """Tokens of the definitions that FastMCP's BM25 search returns, as JSON."""
    tools = [tool for _, tool in dumped_tools()]
    listed = [{"name": t.name, "description": t.description or "", "inputSchema": t.input_schema} for t in tools]
    job = json.dumps({"tools": listed, "queries": queries, "limit": LIMIT})
    script = Path(__file__).with_name("fastmcp_search.py")
    done = subprocess.run([python, str(script)], input=job, capture_output=True, text=True, check=True)
    counts = counter.count_many([tool.model_dump_json() for tool in tools])
    return [sum(counts[at] for at in ranking) for ranking in json.loads(done.stdout)["rankings"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    counter = TokenCounter()
    queries = requests(options.requests)
    rows = asyncio.run(ours(queries, counter))
    if python := os.environ.get("FASTMCP_PYTHON"):
        rows["FastMCP"] = fastmcp(queries, counter, python)
    print(f"median tokens of a reply to {len(queries)} requests, at most {LIMIT} tools, catalog of all dumps")
    whole = statistics.median(rows.get("FastMCP", rows["full"]))
    for label, sizes in rows.items():
        median, below = statistics.median(sizes), 100 * (1 - statistics.median(sizes) / whole)
        print(f"{label:10} {median:8,.0f}   mean {statistics.mean(sizes):8,.0f}   {below:5.1f} % below FastMCP")


if __name__ == "__main__":
    main()
