"""FastMCP's own BM25 search, for comparison, on the same tools and queries.

Started by `speed`, `retrieval` and `replies`, with the interpreter that FASTMCP_PYTHON names, which has FastMCP 4 and
nothing of ours. Reads {"tools": [...], "queries": [...], "limit": n} from stdin; writes rankings (positions), seconds
and memory. This file must not be called `fastmcp`: a script's folder is searched first, so it would import itself.
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
