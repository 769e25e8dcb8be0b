"""Tools to measure with: real ones from the dumps, variations of them, and requests to search for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from benchmarks.paths import DUMPS
from mcp_optimizer import McpTool
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.upstream.listing import read_dumps

QUERIES = (
    "create a github issue",
    "list all my calendar events for tomorrow",
    "search files by name",
    "send a message to a channel",
    "what is the weather in Lisbon",
    "query the sales database",
    "delete a branch",
    "upload a picture to the drive",
    "translate a text to German",
    "show the logs of a deployment",
)
_WORDS = (
    "alpha bravo delta echo foxtrot golf hotel india juliet kilo lima mike oscar papa quebec romeo sierra tango".split()
)


def dumped_tools() -> list[tuple[str, McpTool]]:
    """Every tool of the dumps, with its server."""
    return [(server, tool.parsed()) for server, listing in read_dumps(DUMPS) for tool in listing.tools]


def real_tools(limit: int) -> list[McpTool]:
    """Up to `limit` tools of the dumps, under unique names, because one server lists them all; else made-up ones."""
    listings = (listing for _, listing in read_dumps(DUMPS)) if DUMPS.is_dir() else ()
    tools = [tool.parsed() for tool in islice((tool for listing in listings for tool in listing.tools), limit)]
    if tools:
        return [tool.model_copy(update={"name": f"{tool.name}_{number}"}) for number, tool in enumerate(tools)]
    schema = {"type": "object", "properties": {"id": {"type": "string", "description": "Which one"}}}
    about = "Does one thing well. " * 20
    return [McpTool(name=f"tool_{n}", description=about, inputSchema=schema) for n in range(limit)]


def varied(count: int) -> Iterator[Definition]:
    """`count` different tools, one at a time: all of them, parsed, would be most of the memory that is measured."""
    chance = random.Random(7)
    real = [Definition.of(tool) for tool in real_tools(count)]
    yield from real
    for number in range(len(real), count):
        tool = real[number % len(real)].parsed()
        extra = " ".join(chance.choices(_WORDS, k=3))
        update = {"name": f"{tool.name}_{number}", "description": f"{tool.description or ''} {extra}"}
        yield Definition.of(tool.model_copy(update=update))
