"""A JSON Schema definition with less documentation: for tools that are registered directly, whose clients need
the schema, when a budget is tight. Pure; names, types, enums and defaults stay."""

from __future__ import annotations

from typing import Any

from mcp_optimizer.compression.compress import with_lifted_notes
from mcp_optimizer.compression.descriptions import Level, ShortDescription, at_level
from mcp_optimizer.compression.notes import first_sentence, restates
from mcp_optimizer.compression.walk import Schema, rewrite
from mcp_optimizer.db.models import McpTool


def shorten(tool: McpTool, level: Level, short: ShortDescription | None = None) -> McpTool:
    """The tool with its documentation at a level: all of it, first sentences, or five words and no notes."""
    if level is Level.FULL:
        return tool
    if level is Level.SENTENCE:
        # Before the cut, or notes that stand only in the description would be lost with the rest of it.
        tool = with_lifted_notes(tool)
        schema = _rewritten(tool.input_schema, _first_sentences)
    else:
        schema = _rewritten(tool.input_schema, _without_notes)
    brief = at_level(tool, level, short)
    return tool.model_copy(update={"description": brief or None, "input_schema": schema})


def _first_sentences(node: Schema) -> Schema:
    node = _short_note(node)
    properties = node.get("properties")
    if not isinstance(properties, dict):
        return node
    return {**node, "properties": {name: _without_restating(name, child) for name, child in properties.items()}}


def _short_note(node: Schema) -> Schema:
    note = node.get("description")
    return {**node, "description": first_sentence(note)} if isinstance(note, str) else node


def _without_restating(name: str, node: Any) -> Any:
    if isinstance(node, dict) and isinstance(note := node.get("description"), str) and restates(note, name):
        return {key: value for key, value in node.items() if key != "description"}
    return node


def _without_notes(node: Schema) -> Schema:
    return {key: value for key, value in node.items() if key not in ("description", "title", "examples", "example")}


def _rewritten(schema: Schema, change: Any) -> Schema:
    changed: Schema = rewrite(schema, change)
    return changed
