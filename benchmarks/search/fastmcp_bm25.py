"""FastMCP's own BM25 search on the same tools and queries. Runs in an environment of its own, not in ours:

    FASTMCP_PYTHON=/path/to/python python -m benchmarks.search.retrieval …   (fastmcp 4 installed there)

Reads {"tools": [...], "queries": [...], "limit": n} from stdin; writes rankings (positions), seconds and memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any


async def main() -> None:
    from fastmcp.server.transforms.search.bm25 import BM25SearchTransform  # type: ignore[import-not-found]
    from fastmcp.tools.base import Tool  # type: ignore[import-not-found]

    job: dict[str, Any] = json.load(sys.stdin)
    tools = [
        Tool(name=f"{number}", description=f"{tool['name']} {tool['description']}", parameters=tool["inputSchema"])
        for number, tool in enumerate(job["tools"])
    ]
    search = BM25SearchTransform(max_results=job["limit"])
    started = time.perf_counter()
    await search._search(tools, "build the index")
    built = time.perf_counter() - started
    rankings, seconds = [], []
    for query in job["queries"]:
        started = time.perf_counter()
        found = await search._search(tools, query)
        seconds.append(time.perf_counter() - started)
        rankings.append([int(tool.name) for tool in found])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"rankings": rankings, "seconds": seconds, "build_seconds": built, "memory_mb": memory}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
