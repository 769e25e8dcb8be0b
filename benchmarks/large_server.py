"""A server over stdio whose tools answer with as many bytes as they are asked for. Started by `large_results`."""

from __future__ import annotations

import json
import sys
from typing import Any

LINE = "{}: the quick brown fox jumps over the lazy dog, and then rests for a while beside the old stone bridge\n"
ROW = {"id": 0, "name": "customer name", "email": "someone@example.com", "note": 'a "quoted" note'}


def rows(size: int) -> dict[str, Any]:
    """About this many bytes, as they travel inside a string."""
    return {"items": [{**ROW, "id": number} for number in range(size // 118)]}


def result(name: str, size: int) -> dict[str, Any]:
    if name == "lines":
        return text("".join(LINE.format(number) for number in range(size // len(LINE))))
    if name == "json":
        return text(json.dumps(rows(size)))
    if name == "structured":
        value = rows(size // 2)
        return text(json.dumps(value), structuredContent=value)
    return text("echo")


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "large", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
        names = ("lines", "json", "structured", "echo")
        return {"result": {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}}
    if method == "tools/call":
        return {"result": result(params["name"], params["arguments"]["size"])}
    return {"result": {}} if method == "ping" else {"error": {"code": -32601, "message": method}}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            said = answer(message["method"], message.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
