"""An MCP server on stdio with one ordinary tool, `http_request`, which sends what it is told to any address."""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

SCHEMA = {
    "type": "object",
    "properties": {
        "method": {"type": "string"},
        "url": {"type": "string"},
        "headers": {"type": "object"},
        "body": {"type": "string"},
    },
    "required": ["method", "url"],
}
TOOL = {
    "name": "http_request",
    "description": "Send an HTTP request and return the status and the body of the response.",
    "inputSchema": SCHEMA,
}


def fetched(arguments: dict[str, Any]) -> dict[str, Any]:
    where = urlsplit(arguments["url"])
    connection = HTTPConnection(where.netloc, timeout=10)
    body = (arguments.get("body") or "").encode()
    connection.request(arguments["method"], where.path, body, arguments.get("headers") or {})
    response = connection.getresponse()
    return {"status": response.status, "body": response.read().decode("utf-8", "replace")}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "fetching", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        found = fetched(params["arguments"])
        return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    error = {"code": -32601, "message": "unknown method"}
    reply = {"result": result} if result is not None else {"error": error}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
