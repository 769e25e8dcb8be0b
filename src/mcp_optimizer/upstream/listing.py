"""Reads all pages of a server's tools/list and skills/list tolerantly, and listings that were dumped into files.

The SDK's types reject a complete list for one invalid tool and drop unknown fields. Here an unusable tool is left out,
with its name and the reason, and the others stay exactly as they were sent. `Cursor` follows the pages of any list; a
server cannot make it loop or continue without end. Used by the session.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mcp_optimizer.config.serverfile.spec import ALL, ToolSelection
from mcp_optimizer.domain.skills import definition_of, skill_of
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.upstream.messages import shortened
from mcp_optimizer.upstream.pacing import Pacer

logger = logging.getLogger(__name__)


_MOST_PAGES = 1_000
"""Maximum pages of a list. No honest list has so many; a hostile server could invent pages without end."""

_LONGEST = 10_000


class Cursor:
    """The position in a paged list: request a page with `params`, then `follow` it to the next."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.has_more = True
        self._seen: set[str] = set()

    def end(self) -> None:
        """Read no further page."""
        self.has_more = False

    def follow(self, page: Mapping[str, Any]) -> None:
        """Go to the page that this one names. The list ends if that is missing, repeated or overlong, or after too many
        pages.
        """
        following = page.get("nextCursor")
        if not isinstance(following, str) or not 0 < len(following) <= _LONGEST or following in self._seen:
            self.has_more = False
            return
        self._seen.add(following)
        self.has_more = len(self._seen) < _MOST_PAGES
        self.params = {"cursor": following}


_AT_ONCE = 10
"""Maximum tools read in the event loop; a larger page is read in a thread."""

_MOST_REASONS = 1_000
_SHOWN_NAME = 80
_SHOWN_REASON = 300

Request = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one request to the server: method and params in, the raw result out."""


@dataclass(frozen=True)
class LeftOut:
    """A tool that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SkillsFresh:
    """How long a server's list of skills may be kept, and by whom."""

    until: float
    """In the time of `time.monotonic`."""
    scope: str = "private"


@dataclass(frozen=True)
class Listing:
    """The tools and skills of a server. A `summary` has only their number, once the definitions are no longer needed.

    `turned_off` are the tools that its entry in the server file excludes; `idle` are names in that entry that match no
    tool. `skills` is None for a server without any.
    """

    tools: tuple[Definition, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    turned_off: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    summary_of: int | None = None
    skills: SkillsFresh | None = None

    @property
    def size(self) -> int:
        return len(self.tools) if self.summary_of is None else self.summary_of

    def summary(self) -> Listing:
        """The listing without its definitions, for keeping."""
        return replace(self, tools=(), summary_of=self.size)

    def of(self, selection: ToolSelection) -> Listing:
        """The listing with only the tools that a selection includes. Skills that it does not turn off stay."""
        named = {tool.name: tool for tool in self.tools}
        used = {name: tool for name, tool in named.items() if selection.admits(name) or _stays(tool, selection)}
        turned_off = tuple(name for name in named if name not in used)
        return replace(self, tools=tuple(used.values()), turned_off=turned_off, idle=selection.idle(named))


def _stays(tool: Definition, selection: ToolSelection) -> bool:
    return tool.is_skill and replace(selection, used=ALL).admits(tool.name)


async def list_tools(request: Request, limits: Limits = DEFAULT_LIMITS, pacer: Pacer | None = None) -> Listing:
    """All tools of a server, page by page; `pacer` is shared with other servers."""
    pacer = pacer or Pacer()
    reading, cursor = _Reading(limits), Cursor()
    while cursor.has_more and not reading.is_full:
        result = await request("tools/list", cursor.params)
        page = result.get("tools")
        if isinstance(page, list):
            if len(page) > _AT_ONCE:
                await pacer.in_thread(partial(reading.read, page))
            else:
                await pacer.to_go_on()
                reading.read(page)
            # A connection keeps its last message alive, so empty it.
            page.clear()
        cursor.follow(result)
    return reading.listing()


def read_tools(entries: list[Any], limits: Limits = DEFAULT_LIMITS) -> Listing:
    """Separate usable entries from unusable ones. The first of two tools with the same name wins."""
    reading = _Reading(limits)
    reading.read(entries)
    return reading.listing()


class _Reading:
    """A listing in progress. Packs each entry before reading the next one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tools: dict[str, Definition] = {}
        self._left_out: list[LeftOut] = []
        self._unnamed = 0
        self._position = 0

    @property
    def is_full(self) -> bool:
        return self._position > self._limits.tools

    def read(self, entries: Iterable[Any]) -> None:
        for entry in entries:
            self._read(entry)
            if self.is_full:
                return

    def _read(self, entry: Any) -> None:
        self._position += 1
        if self.is_full:
            return
        try:
            definition = _definition(entry, self._limits)
        except ValueError as problem:
            self._leave_out(_name(entry, self._position), str(problem))
            return
        if definition.name in self._tools:
            self._leave_out(definition.name, "the server lists this name twice; the first one is used")
        else:
            self._tools[definition.name] = definition

    def _leave_out(self, name: str, reason: str) -> None:
        if len(self._left_out) < _MOST_REASONS:
            self._left_out.append(LeftOut(shortened(name, _SHOWN_NAME), shortened(reason, _SHOWN_REASON)))
        else:
            self._unnamed += 1

    def listing(self) -> Listing:
        more = [LeftOut("…", f"{self._unnamed:,} more cannot be used")] if self._unnamed else []
        if self.is_full:
            reason = f"it lists more than {self._limits.tools:,} tools (limits.tools); the rest are left out"
            more.append(LeftOut("…", reason))
        return Listing(tuple(self._tools.values()), (*self._left_out, *more))


def _definition(entry: Any, limits: Limits) -> Definition:
    """The definition of a tool; raises ValueError with the reason if it cannot be used."""
    tool = _read_tool(entry)
    if len(tool.name) > limits.tool_name:
        raise ValueError(f"its name is longer than {limits.tool_name:,} characters (limits.tool_name)")
    if len(tool.description or "") > limits.description:
        raise ValueError(f"its description is longer than {limits.description:,} characters (limits.description)")
    wire_json = tool.model_dump_json()
    if len(wire_json) > limits.definition_bytes:
        raise ValueError(f"it is larger than {limits.definition_bytes:,} bytes (limits.definition_bytes)")
    if wire_json.count("{") + wire_json.count("[") > limits.schema_depth and _depth(entry) > limits.schema_depth:
        raise ValueError(f"it is nested more than {limits.schema_depth} levels deep (limits.schema_depth)")
    return Definition.packing(tool.name, wire_json)


def _depth(value: Any) -> int:
    """The nesting depth of objects and arrays, computed without recursion."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, level = waiting.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, level)
            waiting += [(inner, level + 1) for inner in (item.values() if isinstance(item, dict) else item)]
    return deepest


def _read_tool(entry: Any) -> McpTool:
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    if entry.get("inputSchema") is None:
        # A tool without an inputSchema takes no arguments and can be called.
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


def log_unusable(server: str, listing: Listing) -> None:
    """Log the tools that are left out, and names in the entry that no tool has."""
    if listing.left_out:
        first = listing.left_out[0]
        logger.warning(
            "Server %s: %d of its tools cannot be used and are left out, such as %r (%s). See `doctor`.",
            server,
            len(listing.left_out),
            first.name,
            first.reason,
        )
    for name in listing.idle:
        logger.warning("Server %s: its entry names the tool %r, which it does not have. See `doctor`.", server, name)


def read_dumps(folder: Path) -> Iterator[tuple[str, Listing]]:
    """Read dumps: one server per file, named after it. A file contains a list of tools, or {"tools": [...]}."""
    if not folder.is_dir():
        raise ConfigurationError(f"No folder at {folder}. --tools-dir takes a folder of tools/list dumps (*.json).")
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ConfigurationError(f"{folder} contains no *.json files.")
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"Cannot read the dump {path}: {error}.") from error
        tools = content.get("tools") if isinstance(content, dict) else content
        if not isinstance(tools, list):
            raise ConfigurationError(f'{path} contains neither a list of tools nor {{"tools": [...]}}.')
        yield path.stem, read_tools(tools)


# Reads all pages of a server's skills/list tolerantly: an unusable skill is left out, with the reason, and the others
# stay as they were sent. No file of a skill is read.

METHOD = "skills/list"

_USUAL_TTL_MS = 60_000
_LONGEST_TTL_MS = 24 * 60 * 60 * 1_000
_SHOWN = 80
_MOST_FILES = 100_000
"""Files of all skills of one server. A list of more is hostile, and every one of them takes memory."""


async def with_skills(listing: Listing, request: Request, limits: Limits, pacer: Pacer) -> Listing:
    """A server's tools, and its skills beside them."""
    found: dict[str, Definition] = {}
    left_out: list[LeftOut] = []
    taken = {tool.name for tool in listing.tools}
    files = 0
    cursor, fresh = Cursor(), SkillsFresh(time.monotonic() + _USUAL_TTL_MS / 1_000)
    while cursor.has_more and len(found) < limits.listed_items:
        page = await request(METHOD, cursor.params)
        entries = page.get("skills")
        for entry in entries if isinstance(entries, list) else []:
            await pacer.to_go_on()
            try:
                definition = read_skill(entry, limits)
                if definition.name in found or definition.name in taken:
                    raise ValueError("the server lists this skill twice; the first one is used")
            except ValueError as problem:
                if len(left_out) < _MOST_REASONS:
                    left_out.append(LeftOut(_skill_name(entry), str(problem)))
                continue
            if len(found) >= limits.listed_items:
                left_out.append(LeftOut("…", f"it lists more than {limits.listed_items:,} (limits.listed_items)"))
                break
            files += len(entry["resources"])
            if files > _MOST_FILES:
                left_out.append(LeftOut("…", f"its skills have more than {_MOST_FILES:,} files; the rest are left out"))
                cursor.end()
                break
            found[definition.name] = definition
        fresh = _fresh(page)
        if cursor.has_more:
            cursor.follow(page)
    return replace(
        listing,
        tools=(*listing.tools, *found.values()),
        left_out=(*listing.left_out, *left_out),
        skills=fresh,
    )


def read_skill(entry: Any, limits: Limits) -> Definition:
    """The definition of a skill; raises ValueError with the reason if it cannot be used."""
    skill = skill_of(entry)
    if len(skill.description) > limits.description:
        raise ValueError(f"its description is longer than {limits.description:,} characters (limits.description)")
    try:
        definition = definition_of(entry, skill)
    except (ValueError, RecursionError):
        raise ValueError("its entry cannot be written as JSON") from None
    if len(definition.wire_json) > limits.definition_bytes:
        raise ValueError(f"its entry is larger than {limits.definition_bytes:,} bytes (limits.definition_bytes)")
    if len(definition.name) > limits.tool_name:
        raise ValueError(f"its URI is longer than {limits.tool_name:,} characters (limits.tool_name)")
    return definition


def _fresh(page: Mapping[str, Any]) -> SkillsFresh:
    said = page.get("ttlMs")
    ttl_ms = min(max(said, 0), _LONGEST_TTL_MS) if type(said) is int else _USUAL_TTL_MS
    return SkillsFresh(time.monotonic() + ttl_ms / 1_000, "public" if page.get("cacheScope") == "public" else "private")


def _skill_name(entry: Any) -> str:
    uri = entry.get("uri") if isinstance(entry, Mapping) else None
    return shortened(uri, _SHOWN) if isinstance(uri, str) and uri else "a skill"
