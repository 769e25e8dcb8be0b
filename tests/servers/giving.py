"""An MCP server on stdio that gives whatever result it is asked for.

python giving.py: `give` returns its argument `result` as the result, `huge` a text of so many bytes, `rows` so many
rows as structured content, `newest` the first three or `limit` of a thousand rows, `wrapped` its argument in the
envelope that it declares, `never` nothing at all; `taken` returns its arguments; `change` counts its calls, `refuse`
changes nothing and says so, and `changes` says how many there were.
"""

from __future__ import annotations

import json
import sys
from typing import Any

READS = {"annotations": {"readOnlyHint": True}}


def tool(name: str, *parameters: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {parameter: {} for parameter in parameters}}
    return {"name": name, "description": f"To {name}", "inputSchema": schema, **more}


ENVELOPE = {"type": "object", "properties": {"result": {}}, "required": ["result"]}
TAKEN = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "note": {"type": ["string", "null"]},
    "kind": {"$ref": "#/$defs/Kind"},
}
TOOLS = [
    tool("give", "result", **READS),
    tool("huge", "size", **READS),
    tool("rows", "count", outputSchema={"type": "object"}, **READS),
    {
        **tool("newest", **READS),
        "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer", "default": 3}}},
    },
    tool("wrapped", "result", outputSchema=ENVELOPE, **READS),
    {
        **tool("taken", **READS),
        "inputSchema": {
            "type": "object",
            "properties": TAKEN,
            "required": ["text"],
            "$defs": {"Kind": {"enum": ["a", "b"]}},
        },
    },
    tool("never", **READS),
    tool("changes", **READS),
    tool("change", annotations={"readOnlyHint": False, "destructiveHint": False}),
    tool("refuse", annotations={"readOnlyHint": False, "destructiveHint": False}),
]
changes = 0


def called(name: str, arguments: dict[str, Any]) -> Any:
    global changes
    if name == "give":
        return arguments.get("result")
    if name == "huge":
        return {"content": [{"type": "text", "text": "x" * arguments["size"]}]}
    if name == "rows":
        rows = {"rows": [{"id": number, "name": f"row {number}"} for number in range(arguments["count"])]}
        return {"content": [{"type": "text", "text": json.dumps(rows)}], "structuredContent": rows}
    if name == "newest":
        newest = [{"id": number} for number in range(1_000)][: arguments.get("limit", 3)]
        return {"content": [{"type": "text", "text": json.dumps(newest)}]}
    if name == "wrapped":
        value = arguments.get("result")
        text = value if isinstance(value, str) else json.dumps(value)
        return {"content": [{"type": "text", "text": text}], "structuredContent": {"result": value}}
    if name == "taken":
        return {"content": [{"type": "text", "text": json.dumps(arguments)}]}
    if name == "refuse":
        return {"content": [{"type": "text", "text": "There is no card 7."}], "isError": True}
    if name == "change":
        changes += 1
    return {"content": [{"type": "text", "text": json.dumps({"changes": changes})}]}


def result_of(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        info = {"name": "giving", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    return called(params["name"], params.get("arguments") or {}) if method == "tools/call" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or message.get("params", {}).get("name") == "never":
        continue
    answer = {
        "jsonrpc": "2.0",
        "id": message["id"],
        "result": result_of(message["method"], message.get("params") or {}),
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
