"""The report's totals equal what was sent: the tests count again, independently, from a recording of all messages."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, Implementation
from sqlalchemy import event

from mcp_optimizer import Optimizer
from mcp_optimizer.token_counter import load_encoding
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import WARM, command, until_found
from tests.waiting import until

WIRETAP = Path(__file__).parents[1] / "servers" / "wiretap.py"
KINDS = {"find_tool": "find", "list_tools": "list", "read_result": "read"}
LONG = "A line that is long enough to be worth cutting. " * 120


def requests(count: int, rng: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls of every kind, valid and invalid."""
    makers: list[Callable[[], tuple[str, dict[str, Any]]]] = [
        lambda: ("find_tool", {"tool_description": rng.choice(["say something back", "draw a picture", "zzz qqq"])}),
        lambda: ("find_tool", {"tool_description": "structured facts", "detail": "full", "limit": 8}),
        lambda: ("list_tools", {"server": rng.choice(["one", "two"])}),
        lambda: ("call_tool", {"tool_name": "one__echo", "parameters": {"value": "größe 日本 " * rng.randint(1, 40)}}),
        lambda: ("call_tool", {"tool_name": "one__echo", "parameters": {"value": LONG}}),
        lambda: ("call_tool", {"tool_name": "two_action_2", "parameters": {"id": "7"}}),
        lambda: ("two_action_1", {"id": "called by its own name"}),
        lambda: ("call_tool", {"tool_name": "one__facts", "parameters": {}}),
        lambda: ("call_tool", {"tool_name": "one__picture", "parameters": {}}),
        lambda: ("call_tool", {"tool_name": "one__fail", "parameters": {}}),
        lambda: ("call_tool", {"tool_name": "one__refuse", "parameters": {}}),
        lambda: ("call_tool", {"tool_name": "no_such_tool", "parameters": {}}),
        lambda: ("call_tool", {"tool_name": "one__echo", "parameters": {"value": 5}}),
        lambda: ("no_such_tool_either", {}),
        lambda: ("find_tool", {}),
    ]
    return (makers[number % len(makers)]() for number in range(count))


PROMPT = 2_300
"""Tokens that the client below puts into each of its requests whatever its servers are."""
KNOWN = Implementation(name="continue", version="1")
"""A client that is known to send all definitions, and to tell its conversations apart."""


class Unhurried:
    """A client whose model reads each reply before it asks again: calls without a pause would be one request of it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        due = time.monotonic() + 0.15
        await until(lambda: time.monotonic() > due)
        return await self._client.call_tool(name, arguments)


class Recount:
    """Reads the recording and adds up what a model received, without the gateway's own code."""

    def __init__(self, recording: Path) -> None:
        self._encoding = load_encoding("cl100k_base")
        self.times: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.requests = self.read = self.without = 0
        self._menu = self._conversation = self._uncut = 0
        self.baseline = 0
        asked: dict[Any, dict[str, Any]] = {}
        for line in recording.read_text(encoding="utf-8").splitlines():
            message = json.loads(line[2:])
            if line.startswith("> ") and "id" in message:
                asked[message["id"]] = message
            elif line.startswith("< ") and message.get("id") in asked and "method" not in message:
                self._answered(asked.pop(message["id"]), message)
        # The model reads the last reply in one more request.
        self.requests += 1
        self.read += self._menu + self._conversation
        self.without += self.baseline + self._uncut

    def _answered(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        if request["method"] == "tools/list":
            listed = [json.dumps(t, ensure_ascii=False, separators=(",", ":")) for t in answer["result"]["tools"]]
            self._menu = sum(map(self._count, listed)) + PROMPT
            self._add("load", self._menu - PROMPT)
        elif request["method"] == "tools/call":
            tokens = self._call(answer)
            kind = KINDS.get(request["params"]["name"], "call")
            self._add(kind, tokens)
            self.requests += 1
            self.read += self._menu + self._conversation
            self._conversation += tokens
            if kind == "call" and not self._is_wrong(answer):
                self.without += self.baseline + self._uncut
                self._uncut += self._whole(answer, tokens)

    def _call(self, answer: dict[str, Any]) -> int:
        if "error" in answer:
            return self._count(answer["error"]["message"])
        result = answer["result"]
        # What a client would send of all definitions, as the reply says it.
        found = re.search(r"Saved \d+ of (\d+) tokens", result["content"][-1].get("text", ""))
        self.baseline = int(found[1]) + PROMPT if found else self.baseline
        return sum(self._count(block["text"]) for block in result["content"] if block["type"] == "text")

    def _is_wrong(self, answer: dict[str, Any]) -> bool:
        """Whether the model made a mistake that it would not make without us: an unknown tool, invalid arguments."""
        if "error" in answer:
            return bool(answer["error"]["message"].startswith("Unknown tool"))
        text = next((block["text"] for block in answer["result"]["content"] if block["type"] == "text"), "")
        return bool(answer["result"].get("isError")) and text.startswith(("Unknown tool", "Invalid parameters"))

    def _whole(self, answer: dict[str, Any], tokens: int) -> int:
        """The tokens of the result as the server sent it, even if it was cut."""
        kept = (answer.get("result") or {}).get("_meta", {}).get("mcp-optimizer/result")
        return int(kept["fullTokens"]) if kept else tokens

    def _add(self, kind: str, tokens: int) -> None:
        self.times[kind] += 1
        self.tokens[kind] += tokens

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


async def ask(client: Unhurried, name: str, arguments: dict[str, Any]) -> str | None:
    """Call a tool. Returns the id of the kept result if the result was cut."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError:
        return None
    kept = (result.meta or {}).get("mcp-optimizer/result") or {}
    return kept.get("resultId")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_hundred_requests_are_reported_to_the_token(
    write_servers: WriteServers, tmp_path: Path, mode: str
) -> None:
    config = write_servers({"one": plain_server("one"), "two": plain_server("two", "--tools", 12)})
    recording, database = tmp_path / "wire", tmp_path / "catalog.db"
    options = ["--config", config, "--database", database, "--max-tokens", 400]
    # By default long texts are estimated from samples; this option counts them exactly.
    options += ["--token-estimate", "tiktoken:cl100k_base"]
    gateway = [*WARM, "serve", *map(str, options)]
    passed = {name: value for name, value in os.environ.items() if name.startswith(("XDG_", "MCP_OPTIMIZER_"))}
    tapped = StdioServerParameters(command=sys.executable, args=[str(WIRETAP), str(recording), *gateway], env=passed)
    async with Client(tapped, mode=mode, client_info=KNOWN) as quick:
        await quick.list_tools()
        client = Unhurried(quick)
        for server in ("one", "two"):
            await until_found(client, f"{server} structured facts", f"{server}__facts")
        await client.call_tool("find_tool", {"tool_description": "structured facts"})
        for name, arguments in requests(90, random.Random(7)):
            if (result_id := await ask(client, name, arguments)) is not None:
                await ask(client, "read_result", {"result_id": result_id})
    counted = Recount(recording)
    report = (await command("report", "--config", config, "--database", database, "--json")).json
    usage = report["usage"]
    assert sum(counted.times.values()) >= 100
    assert {row["kind"]: row["times"] for row in usage["kinds"]} == counted.times
    assert {row["kind"]: row["tokens"] for row in usage["kinds"]} == counted.tokens
    saved = usage["savings"]
    assert saved["requests"]["with"] == counted.requests
    assert saved["tokens"]["with"] == counted.read
    assert report["baseline_tokens"] > report["sent_tokens"] == counted.baseline - PROMPT
    assert saved["tokens"]["without"] == counted.without
    # Limits cut some results; `before` counts them uncut.
    assert usage["results"]["before"] > usage["results"]["after"] > 0
    recorded = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.glob("catalog.db*"))
    assert "no_such_tool" not in recorded


def _fill_up(connection: Any, _record: Any) -> None:
    """Keep the file from growing, so that SQLite reports the same error as on a full disk."""
    connection.execute("PRAGMA max_page_count = 1")


@pytest.mark.parametrize("trouble", ["locked", "full", "deleted"])
async def test_a_database_in_trouble_changes_nothing_for_callers(
    write_servers: WriteServers, tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "catalog.db"
    config = write_servers({"one": plain_server("one")})
    async with Optimizer.from_config(config, database=str(path), encoder="none") as optimizer:
        database = optimizer.storage._database
        assert database is not None
        other = sqlite3.connect(path)
        if trouble == "locked":
            other.execute("BEGIN EXCLUSIVE")
        elif trouble == "full":
            assert database.writer is not None
            for engine in (database.engine.sync_engine, database.writer.engine):
                event.listen(engine, "connect", _fill_up)
            await database.engine.dispose()
            await database.writer.disconnect()
        else:
            path.unlink()
        async with asyncio.timeout(4):
            # The timeout is shorter than any wait for the lock.
            for number in range(100):
                result = await optimizer.call("echo", {"value": "x" * 500})
                assert not result.get("isError"), result
                if number % 10 == 0:
                    assert (await optimizer.find("say something back")).tools
        await optimizer.accounts.settled()
        assert optimizer.recorder.waiting + optimizer.recorder.written == 110
        if trouble == "full":
            await until(lambda: "Cannot write history" in caplog.text, timeout=30)
            # What fits into the pages that there are is written, if it comes before the rest.
            assert optimizer.recorder.written < 110
        other.rollback()
        other.close()
    # Each event was either written or dropped.
    assert optimizer.recorder.written + optimizer.recorder.dropped == 110
    assert (optimizer.recorder.dropped > 0) is (trouble == "full")
