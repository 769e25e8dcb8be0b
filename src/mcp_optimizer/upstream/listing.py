"""Reads a server's tools/list, all pages of it, tolerantly.

The SDK's types fail a whole list for one invalid tool and drop fields they do not know. Here a tool that
cannot be used is left out by name, with the reason, and the others stay exactly as they were sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from mcp_optimizer.db.models import Definition, McpTool
from mcp_optimizer.upstream.selection import ToolSelection

_MOST_PAGES = 1_000
"""A server whose pages never end must not hold its start for ever."""

Request = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one request to the server: method and params in, the raw result out."""


@dataclass(frozen=True)
class LeftOut:
    """A tool that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """What a server offers. A `summary` has no tools any more, only their number: whoever needed them has them.

    `turned_off` are the tools that its entry in the server file does without; `idle` is what that entry names in vain.
    """

    tools: tuple[Definition, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    turned_off: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    summary_of: int | None = None

    @property
    def size(self) -> int:
        return len(self.tools) if self.summary_of is None else self.summary_of

    def summary(self) -> Listing:
        """What may be kept for long by whoever does not need the definitions."""
        return replace(self, tools=(), summary_of=self.size)

    def of(self, selection: ToolSelection) -> Listing:
        """Only the tools that a selection admits."""
        named = {tool.name: tool for tool in self.tools}
        used = {name: tool for name, tool in named.items() if selection.admits(name)}
        turned_off = tuple(name for name in named if name not in used)
        return replace(self, tools=tuple(used.values()), turned_off=turned_off, idle=selection.idle(named))


async def list_tools(request: Request) -> Listing:
    """Follow the cursor to the end. A repeated cursor ends it: the server would turn in circles."""
    reading = _Reading()
    seen: set[str] = set()
    params: dict[str, Any] = {}
    for _ in range(_MOST_PAGES):
        result = await request("tools/list", params)
        page = result.get("tools")
        if isinstance(page, list):
            reading.read(page)
            # The last message of a connection is held on to for as long as it lives: let it be an empty one.
            page.clear()
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    return reading.listing()


def read_tools(entries: list[Any]) -> Listing:
    """Sort the usable entries from the others. The first of two tools of one name wins."""
    reading = _Reading()
    reading.read(entries)
    return reading.listing()


class _Reading:
    """A listing in the making. Each entry is turned into what is kept of it before the next one is looked at."""

    def __init__(self) -> None:
        self._tools: dict[str, Definition] = {}
        self._left_out: list[LeftOut] = []
        self._position = 0

    def read(self, entries: Iterable[Any]) -> None:
        for entry in entries:
            self._position += 1
            name = _name(entry, self._position)
            try:
                definition = Definition.of(_read_tool(entry))
            except ValueError as problem:
                self._left_out.append(LeftOut(name, str(problem)))
                continue
            if definition.name in self._tools:
                self._left_out.append(LeftOut(name, "the server lists this name twice; the first one is used"))
            else:
                self._tools[definition.name] = definition

    def listing(self) -> Listing:
        return Listing(tuple(self._tools.values()), tuple(self._left_out))


def _read_tool(entry: Any) -> McpTool:
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    if entry.get("inputSchema") is None:
        # Such a tool takes nothing, and can be called.
        entry = {**entry, "inputSchema": {"type": "object"}}
    try:
        return McpTool.model_validate(entry, by_name=False, by_alias=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from None


def _name(entry: Any, position: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"#{position}"
