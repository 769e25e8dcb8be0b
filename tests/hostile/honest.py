"""The answers of an honest server of either era, which the hostile servers change. Standard library only."""

from __future__ import annotations

import json
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}
_INFO = {"name": "hostile", "version": "1"}
_SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}}
TOOLS = [
    {"name": "repeat", "description": "Say it once more", "inputSchema": _SCHEMA},
    {"name": "poke", "description": "Give this server an occasion", "inputSchema": _SCHEMA},
]
_LISTS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": TOOLS},
    "prompts/list": {"prompts": [{"name": "advice", "description": "Some advice"}]},
    "resources/list": {"resources": [{"uri": "hostile://one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "hostile://{name}", "name": "any"}]},
}
_RESULTS: dict[str, dict[str, Any]] = {
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "Take care."}}]},
    "resources/read": {"contents": [{"uri": "hostile://one", "text": "one"}]},
    "completion/complete": {"completion": {"values": ["one"]}},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "logging/setLevel": {},
    "ping": {},
}


def answer(message: dict[str, Any], *, is_modern: bool) -> str:
    """The response to a request, as JSON; empty for a notification, and for a stream that stays open."""
    number, method = message.get("id"), message.get("method")
    if number is None or method == "subscriptions/listen":
        return ""
    result = _result(str(method), message.get("params") or {}, is_modern)
    if result is None:
        error = {"code": -32601, "message": f"Method not found: {method}"}
        return json.dumps({"jsonrpc": "2.0", "id": number, "error": error})
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result})


def _result(method: str, params: dict[str, Any], is_modern: bool) -> dict[str, Any] | None:
    if method == "initialize" and not is_modern:
        return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": _INFO, "instructions": "Poke."}
    more = {"resultType": "complete"} if is_modern else {}
    cached = {"ttlMs": 0, "cacheScope": "private"} if is_modern else {}
    if method == "server/discover" and is_modern:
        about = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "instructions": "Poke."}
        return {**about, **more, **cached, "_meta": {"io.modelcontextprotocol/serverInfo": _INFO}}
    if method in _LISTS:
        return {**_LISTS[method], **more, **cached}
    if method in _RESULTS:
        return {**_RESULTS[method], **more}
    if method == "tools/call":
        text = json.dumps({"tool": params.get("name"), "arguments": params.get("arguments")})
        return {"content": [{"type": "text", "text": text}], **more}
    return None
