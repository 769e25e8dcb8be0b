"""An MCP server on stdio that plays a stored answer to tools/list: `python dumped.py FILE`.

A call is answered with a result that fits the tool's outputSchema: lists hold two items, of which the second has only
what the schema requires and null wherever that is allowed. A call with a cursor is answered with the last page. Without
an outputSchema the answer is a text that is not JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
PLAIN: dict[str, Any] = {"string": "some text", "integer": 3, "number": 2.5, "boolean": True, "null": None}


def sample(schema: Any, root: Schema, full: bool, depth: int = 0) -> Any:
    """A value that fits; `full`: with every property."""
    if not isinstance(schema, dict) or depth > 12:
        return {}
    if "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found.get(step, {}) if isinstance(found, dict) else {}
        return sample(found, root, full, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _beside(schema, sample(_choice(schema[word], full), root, full, depth + 1), root, full, depth)
    if "allOf" in schema:
        return sample({key: value for part in schema["allOf"] for key, value in part.items()}, root, full, depth + 1)
    return _of_type(schema, root, full, depth)


def _beside(schema: Schema, chosen: Any, root: Schema, full: bool, depth: int) -> Any:
    """What was chosen, with the properties that every choice has."""
    others = _of_type(schema, root, full, depth) if "properties" in schema else {}
    return {**others, **chosen} if isinstance(chosen, dict) and isinstance(others, dict) else chosen


def _choice(options: list[Any], full: bool) -> Any:
    nulls = [option for option in options if isinstance(option, dict) and option.get("type") == "null"]
    others = [option for option in options if option not in nulls]
    return others[0] if others and (full or not nulls) else nulls[0]


def _of_type(schema: Schema, root: Schema, full: bool, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = "null" if "null" in kind and not full else next(one for one in kind if one != "null")
    if kind == "array":
        items = schema.get("items", {})
        if isinstance(items, list):
            return [sample(item, root, full, depth + 1) for item in items]
        return [sample(items, root, True, depth + 1), sample(items, root, False, depth + 1)]
    if kind == "object" or kind is None:
        required = schema.get("required", [])
        properties = schema.get("properties", {})
        return {key: sample(properties[key], root, full, depth + 1) for key in properties if full or key in required}
    return PLAIN[kind]


def result_of(tools: dict[str, Schema], method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        info = {"name": "dumped", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": list(tools.values())}
    if method != "tools/call":
        return {}
    schema = tools[params["name"]].get("outputSchema")
    if schema is None:
        return {"content": [{"type": "text", "text": "Two lines\nof plain text"}]}
    last = any("cursor" in name.lower() for name in params.get("arguments") or {})
    value = sample(schema, schema, not last)
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def main() -> None:
    tools = {tool["name"]: tool for tool in json.loads(Path(sys.argv[1]).read_text())["tools"]}
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = result_of(tools, message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
