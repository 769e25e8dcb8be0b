"""Shortens the documentation in a JSON Schema definition, for directly registered tools under a tight budget.

Pure; names, types, enums and defaults stay.
"""

from __future__ import annotations

from typing import Any

from mcp_optimizer.compression.descriptions import Level, ShortDescription, at_level
from mcp_optimizer.compression.notes import first_sentence, lift_into, restates
from mcp_optimizer.compression.walk import Schema, carried
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import McpTool


def shorten(tool: McpTool, level: Level, short: ShortDescription | None = None) -> McpTool:
    """The tool with its documentation at a level: all, first sentences, or five words and no notes."""
    if level is Level.FULL:
        return tool
    if level is Level.SENTENCE:
        # Before cutting, because notes that are only in the description would be lost.
        description, schema = lift_into(tool.description, tool.input_schema) or (tool.description, tool.input_schema)
        tool = tool.model_copy(update={"description": description, "input_schema": carried(schema, _first_sentences)})
    else:
        tool = tool.model_copy(update={"input_schema": carried(tool.input_schema, _without_notes)})
    return tool.model_copy(update={"description": at_level(tool, level, short) or None})


def _first_sentences(node: Schema) -> Schema:
    node = _short_note(node)
    properties = properties_of(node)
    if not properties:
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
