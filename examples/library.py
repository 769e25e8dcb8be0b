"""The gateway inside your own program: find a tool by what it does, call it, see what that saved.

    python examples/library.py

`demo=True` starts the three demo servers that come with the package. With servers of your own, name your server
file instead, Optimizer.from_config("mcp.json"), or give what it would contain as a dictionary.
"""

from __future__ import annotations

import asyncio

from mcp_optimizer import Optimizer, OptimizerError


async def main() -> None:
    # Entering the block starts all servers and waits for them; leaving it ends them. Any option of docs/options.md
    # can be given by name. database="none" keeps nothing on disk: right for a short program, and for a test.
    async with Optimizer.from_config(demo=True, database="none") as optimizer:
        # What a model would ask for. The tools come back best first, already small enough to put into a prompt.
        found = await optimizer.find("list the tables of the database")
        best = found.tools[0]
        print(f"Best of {len(found.tools)}: {best.name} of {best.server}, {best.score:.2f} likely to answer")
        print(best.description)

        # Against a prompt that carries every tool of every server.
        saved = found.token_metrics
        print(f"{saved.returned_tokens} tokens instead of {saved.baseline_tokens}: {saved.savings_percentage} % saved")

        # The result is what the server sent. `_meta` says what it costs a model to read.
        result = await optimizer.call(best.name, {})
        print(result["content"][0]["text"])
        print(f"The result costs {result['_meta']['tokens']['estimated']} tokens.")

        # A wrong name or wrong arguments raise an error whose message says what to do. A tool that ran and failed
        # does not raise: its result has isError set, as in MCP.
        try:
            await optimizer.call("list_tabels", {})
        except OptimizerError as error:
            print(f"Refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
