"""Describes a tool in at most five words, for directly registered tools. Pure; its parameters stay as they are."""

from __future__ import annotations

from typing import Any

from mcp_optimizer.compression.descriptions import ShortDescription
from mcp_optimizer.compression.lossless import joined, tidy
from mcp_optimizer.compression.rules import binding
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import McpTool


def concise(tool: McpTool, short: ShortDescription, description: str) -> McpTool:
    """The tool described in at most five words; `description` is the whole one.

    The rules of it without which a call goes wrong stay, with the schema of the arguments.
    """
    if not short.text:
        return tool
    schema = tool.input_schema
    notes = {name: str(node.get("description", "")) for name, node in properties_of(schema).items() if _is_node(node)}
    rules, own = binding(tidy(description), notes), schema.get("description")
    if rules:
        schema = {**schema, "description": joined(own, rules) if isinstance(own, str) and own else rules}
    return tool.model_copy(update={"description": short.text, "input_schema": schema})


def _is_node(schema: Any) -> bool:
    # `true` and `false` are schemas, too.
    return isinstance(schema, dict)
