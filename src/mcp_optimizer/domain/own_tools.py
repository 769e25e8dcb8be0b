"""The gateway's own tools, as every model sees them in every prompt.

Their cost is part of the product: a test keeps them under 600 tokens together. Pure data.
"""

from __future__ import annotations

from typing import Any

INSTRUCTIONS = (
    "This server gives access to many tools of many servers. Search with find_tool, then run what you found "
    "with call_tool."
)

FIND_TOOL: dict[str, Any] = {
    "name": "find_tool",
    "description": (
        "Search all available tools by what you want to do. Use it whenever no tool you can see fits, before "
        "saying that something cannot be done. Returns the best matching tools with their parameters (? means "
        "optional); run one with call_tool."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool_description": {
                "type": "string",
                "description": "The action wanted, in English, e.g. 'create a GitHub issue'. One action per search.",
            },
            "tool_keywords": {"type": "string", "description": "Extra words: product, server or tool names."},
            "limit": {"type": "integer", "minimum": 1, "description": "Most tools to return."},
            "detail": {
                "enum": ["signature", "schema", "full"],
                "description": "How parameters are described; signature is enough to call.",
            },
        },
        "required": ["tool_description"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

CALL_TOOL: dict[str, Any] = {
    "name": "call_tool",
    "description": "Run a tool that find_tool or list_tools returned.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "description": "The tool's name as returned."},
            "parameters": {"type": "object", "description": "The tool's arguments, as its description says."},
            "server_name": {"type": "string", "description": "Only if several servers have the tool."},
            "select": {"type": "string", "description": "JMESPath: only this of a JSON result, e.g. items[].name"},
        },
        "required": ["tool_name", "parameters"],
    },
}

LIST_TOOLS: dict[str, Any] = {
    "name": "list_tools",
    "description": "Names and short descriptions of all tools, 100 a page. Prefer find_tool.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "server": {"type": "string", "description": "Only this server's tools."},
            "offset": {"type": "integer", "minimum": 0, "description": "Where the page begins."},
        },
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

READ_RESULT: dict[str, Any] = {
    "name": "read_result",
    "description": "Read more of a result that was cut.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "result_id": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "description": "First row or line wanted."},
            "limit": {"type": "integer", "minimum": 1},
            "select": {"type": "string", "description": "JMESPath over all of it, instead of a page."},
            "search": {"type": "string", "description": "Only rows or lines that contain this."},
        },
        "required": ["result_id"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

OWN_TOOLS = (FIND_TOOL, CALL_TOOL, LIST_TOOLS, READ_RESULT)
