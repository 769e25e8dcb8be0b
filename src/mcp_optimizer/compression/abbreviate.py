"""Abbreviates a definition that is too large to show: keeps the first items of each part and counts the rest. Pure.

Omissions are marked in place ("… 199,980 more"), in schemas and in texts. An abbreviated schema is only for reading;
arguments are always checked against the original. Called by `catalog/tool_forms` for replies that would be too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.json_schema import properties_of, required_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.search.deprecation import sentence as deprecation


@dataclass(frozen=True)
class _Room:
    """How many items of each part of a definition are kept."""

    members: int
    items: int
    characters: int
    depth: int


_ROOMS = (
    _Room(members=500, items=200, characters=2_000, depth=20),
    _Room(members=200, items=50, characters=1_000, depth=12),
    _Room(members=100, items=20, characters=500, depth=10),
    _Room(members=50, items=10, characters=300, depth=8),
    _Room(members=30, items=5, characters=200, depth=7),
    _Room(members=15, items=4, characters=120, depth=6),
    _Room(members=8, items=3, characters=80, depth=5),
    _Room(members=4, items=2, characters=60, depth=4),
)
"""From large to small; the first that makes a definition small enough is used."""

_LEAST = 300
"""Characters of a description that are always kept."""


def abbreviated(tool: McpTool, most: int) -> McpTool:
    """The tool in at most `most` characters of JSON, unless its name alone is too long."""
    if warning := deprecation(tool.description or "")[:_LEAST]:
        # First, where nothing is cut off.
        tool = tool.model_copy(update={"description": f"{warning} {(tool.description or '').replace(warning, '', 1)}"})
    for room in _ROOMS:
        # Field by field, because serializing the whole definition would take longer than abbreviating it.
        shown = {field: _kept(value, room, room.depth) for field, value in tool if value is not None}
        shown["name"] = tool.name
        if len(compact(shown)) <= most:
            return McpTool.model_validate(shown)
    schema = {"type": "object", "properties": {"…": {"const": "the parameters are not shown"}}}
    return McpTool(name=tool.name, description=_text(tool.description or "", _LEAST), inputSchema=schema)


_MORE = "… {}"


def _kept(value: Any, room: _Room, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, room.characters)
    if isinstance(value, dict):
        return _members(value, room, depth) if depth else _left_out(value, len(value))
    if isinstance(value, list):
        return _items(value, room, depth) if depth else [_left_out(value, len(value))]
    return value


def _text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} … {len(text) - most:,} more characters"


def _items(values: list[Any], room: _Room, depth: int) -> list[Any]:
    kept = [_kept(value, room, depth - 1) for value in values[: room.items]]
    more = len(values) - room.items
    return [*kept, _left_out(values, more)] if more > 0 else kept


def _members(members: dict[str, Any], room: _Room, depth: int) -> dict[str, Any]:
    properties, required, exact = properties_of(members), required_of(members), ""
    if required and len(properties) > room.members:
        # Required members come first, and `required` lists only those that are kept.
        names = frozenset(required)
        ordered = sorted(properties, key=lambda name: name not in names)
        shown = frozenset(ordered[: room.members])
        listed = [name for name in required if name in shown]
        members = {**members, "properties": {name: properties[name] for name in ordered}, "required": listed}
        exact = "required"
    kept = {
        _text(name, room.characters): value if name == exact else _kept(value, room, depth - 1)
        for name, value in list(members.items())[: room.members]
    }
    more = len(members) - room.members
    return {**kept, "…": _left_out(members, more)} if more > 0 else kept


def _left_out(values: dict[str, Any] | list[Any], count: int) -> Any:
    """A placeholder for omitted items: a schema among schemas, a text among texts."""
    said = _MORE.format(f"{count:,} more")
    among = next(iter(values.values() if isinstance(values, dict) else values), None)
    return {"const": said} if isinstance(among, dict) or (isinstance(values, dict) and not among) else said
