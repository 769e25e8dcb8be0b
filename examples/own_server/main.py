"""A server file of your own: mcp.json, beside this program, starts server.py and turns one of its tools off.

    python examples/own_server/main.py

The same file works with every command: mcp-optimizer doctor --config examples/own_server/mcp.json
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp_optimizer import Optimizer, OptimizerError

SERVER_FILE = Path(__file__).with_name("mcp.json")


async def main() -> None:
    # mcp.json asks for ${PYTHON}: the server needs the interpreter that has the `mcp` package.
    os.environ.setdefault("PYTHON", sys.executable)

    async with Optimizer.from_config(SERVER_FILE, database="none") as optimizer:
        # A server that cannot be started does not stop the others; this says how each of them stands.
        for server in optimizer.servers():
            print(f"{server.name}: {server.status}")

        found = await optimizer.find("how long should my tea draw")
        print(f"Found: {found.tools[0].name}")

        # server__tool is always that server's tool, whatever other servers call theirs.
        result = await optimizer.call("tea__brewing_instructions", {"tea": "sencha"})
        print(result["content"][0]["text"])

        # The file turned this one off.
        try:
            await optimizer.call("close_shop", {})
        except OptimizerError as error:
            print(f"Refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
