"""What a model sends and reads in one task, with its tokens: all of it as text, as a client puts it into the context.

Knows the gateway's own tools and nothing of tasks.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp import Client

from mcp_optimizer.token_counter import TokenCounter

_CUT = re.compile(r'^\[Cut: .*read_result\(result_id="([^"]+)", offset=(\d+)\)')
_MOST_PAGES = 50


class Failed(Exception):
    """A call that the model reads as an error."""


@dataclass
class Spent:
    """What one part of a task took."""

    sent: int = 0
    read: int = 0
    calls: int = 0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.sent + self.read

    @classmethod
    def together(cls, parts: Iterable[Spent]) -> Spent:
        found = cls()
        for part in parts:
            found.sent += part.sent
            found.read += part.read
            found.calls += part.calls
            found.seconds += part.seconds
        return found


def texts_of(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed(text: str) -> Any:
    """A result as a value: JSON if it is, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass
class Model:
    """One conversation about one task."""

    client: Client
    counter: TokenCounter
    discovery: Spent = field(default_factory=Spent)
    work: Spent = field(default_factory=Spent)
    told: list[str] = field(default_factory=list)
    """What find_tool replied."""

    async def search(self, text: str, **more: Any) -> str:
        """Ask find_tool, which counts as discovery."""
        reply = "\n".join(await self._exchange(self.discovery, "find_tool", {"tool_description": text, **more}))
        self.told.append(reply)
        return reply

    async def call(self, tool: str, select: str | None = None, server: str | None = None, **arguments: Any) -> Any:
        """Call a tool through the gateway and return what can be read: its first text, parsed."""
        return parsed((await self._called(tool, select, server, arguments))[0])

    async def call_all(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and read on until its result is complete."""
        texts = await self._called(tool, None, None, arguments)
        cut = _CUT.match(texts[-1])
        if cut is None:
            return parsed(texts[0])
        result_id, offset, pages = cut[1], 0, ""
        for _ in range(_MOST_PAGES):
            page = await self._exchange(self.work, "read_result", {"result_id": result_id, "offset": offset})
            pages += page[0]
            more = re.search(r"offset=(\d+)", page[-1]) if len(page) > 1 else None
            if more is None:
                return parsed(pages)
            offset = int(more[1])
        raise AssertionError(f"{tool}: no end after {_MOST_PAGES} pages")

    async def script(self, script: str, may_change: tuple[str, ...] = ()) -> str:
        """Run a script and return all that the model reads."""
        arguments: dict[str, Any] = {"script": script}
        if may_change:
            arguments["may_change"] = list(may_change)
        return "\n".join(await self._exchange(self.work, "run_script", arguments))

    async def _called(self, tool: str, select: str | None, server: str | None, arguments: dict[str, Any]) -> list[str]:
        request: dict[str, Any] = {"tool_name": tool, "parameters": arguments}
        if server:
            request["server_name"] = server
        if select:
            request["select"] = select
        return await self._exchange(self.work, "call_tool", request)

    async def _exchange(self, spent: Spent, tool: str, arguments: dict[str, Any]) -> list[str]:
        started = time.perf_counter()
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, types.CallToolResult), result
        spent.seconds += time.perf_counter() - started
        texts = texts_of(result)
        spent.calls += 1
        spent.sent += self.counter.count_tokens(tool + compact(arguments))
        spent.read += self.counter.count_tokens("\n".join(texts))
        if result.is_error:
            raise Failed(f"{tool} {compact(arguments)[:300]}: {' '.join(texts)[:600]}")
        return texts
