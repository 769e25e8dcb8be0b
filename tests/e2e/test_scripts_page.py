"""Every example on the page about scripts returns, on the demo servers, exactly what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from mcp import Client, types

from tests.conftest import ROOT, WriteServers
from tests.e2e.running import WARM_DEMO, demo_entry, over_stdio, until_found

pytest.importorskip("pydantic_monty", reason="needs the extra scripts")

PAGE = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Example:
    """A script of the page, the tools that it may change something with, and what comes back."""

    title: str
    script: str
    may_change: tuple[str, ...]
    reply: str


def examples() -> list[Example]:
    """Sections `### 1. Title`, each with a script, then what comes back."""
    found = []
    for title, text in re.findall(r"^### \d+\. (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE):
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert [kind for kind, _ in blocks] == ["python", "text"], title
        named = re.search(r"`may_change=(\[.*?\])`", text)
        may_change = tuple(json.loads(named[1])) if named else ()
        found.append(Example(title, blocks[0][1].rstrip("\n"), may_change, blocks[1][1].rstrip("\n")))
    return found


@asynccontextmanager
async def demo_client(write_servers: WriteServers) -> AsyncIterator[Client]:
    """A client of a gateway to new demo servers: an example that changes something changes only its own."""
    entries = {name: demo_entry(name) for name in WARM_DEMO}
    options = ("--database", "none", "--encoder", "none", "--scripts", "write")
    async with over_stdio(write_servers(entries), *options) as client:
        for query, name in (
            ("list boards", "list_boards"),
            ("list tables", "listTables"),
            ("list pages", "list_pages"),
        ):
            await until_found(client, query, name)
        yield client


def test_there_are_six_worked_examples() -> None:
    assert len(examples()) == 6


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.title)
async def test_an_example_returns_what_the_page_says(example: Example, write_servers: WriteServers) -> None:
    arguments = {"script": example.script, "may_change": list(example.may_change)}
    async with demo_client(write_servers) as client:
        result = await client.call_tool("run_script", arguments)
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    assert "\n".join(texts) == example.reply
