"""FastMCP 4's proxy, for comparison.

Started by `gateway`, with an interpreter that has FastMCP 4: python fastmcp_proxy.py FRONT BACK [--reuse]. FRONT is
"stdio" or a port; BACK is a URL, or PYTHON|PATH of a server on stdio. --reuse connects one client once, for all calls;
without it, the proxy runs with its defaults.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.server import create_proxy  # type: ignore[import-not-found]


async def main() -> None:
    front, back, *options = sys.argv[1:]
    # The server needs its own interpreter, not this one, so BACK names both.
    target: Any = back if back.startswith("http") else StdioTransport(back.split("|")[0], [back.split("|")[1]])
    client = Client(target)
    if "--reuse" in options:
        await client.__aenter__()
    proxy = create_proxy(client)
    if front == "stdio":
        await proxy.run_async(transport="stdio", show_banner=False)
    else:
        await proxy.run_async(
            transport="http", host="127.0.0.1", port=int(front), show_banner=False, log_level="critical"
        )


if __name__ == "__main__":
    asyncio.run(main())
