"""Every kind of message that a client of either era may send to the gateway. The hostile client changes them."""

from __future__ import annotations

from typing import Any

from tests.hostile.client_inputs import LEGACY, MODERN

_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}},
}
_ABOUT = {
    "capabilities": {"roots": {"listChanged": True}, "elicitation": {}},
    "clientInfo": {"name": "h", "version": "1"},
}
_CALLS: tuple[dict[str, Any], ...] = (
    {
        "name": "find_tool",
        "arguments": {"tool_description": "say it", "tool_keywords": "echo", "limit": 3, "detail": "full"},
    },
    {
        "name": "call_tool",
        "arguments": {
            "tool_name": "echo",
            "parameters": {"value": "x"},
            "server_name": "witness",
            "select": "a[?b=='c'].{d: e, f: length(g)} | [0]",
        },
    },
    {"name": "call_tool", "arguments": {"tool_name": "poke", "parameters": {"value": "x"}, "server_name": "http-0"}},
    {"name": "list_tools", "arguments": {"server": "witness", "offset": 0}},
    {
        "name": "read_result",
        "arguments": {"result_id": "r-1", "offset": 0, "limit": 5, "select": "[*].a", "search": "x"},
    },
)
_REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("tools/call", call) for call in _CALLS),
    ("tools/list", {"cursor": "10"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "advice", "arguments": {"a": "b"}}),
    ("resources/list", {"cursor": "c"}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "hostile://one"}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "advice"}, "argument": {"name": "a", "value": "b"}}),
)
_LEGACY_ONLY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("initialize", {"protocolVersion": "2025-11-25", **_ABOUT}),
    ("ping", {}),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "hostile://one"}),
    ("resources/unsubscribe", {"uri": "hostile://one"}),
)
_MODERN_ONLY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("server/discover", {}),
    ("tools/call", {**_CALLS[1], "requestState": "s", "inputResponses": {"q": {"action": "accept", "content": {}}}}),
    ("tasks/get", {"taskId": "t"}),
)
_TOLD: tuple[dict[str, Any], ...] = (
    {"method": "notifications/initialized"},
    {"method": "notifications/cancelled", "params": {"requestId": 5, "reason": "r"}},
    {"method": "notifications/progress", "params": {"progressToken": 5, "progress": 1}},
    {"method": "notifications/roots/list_changed"},
    {"id": 1, "result": {"action": "decline"}},
    {"id": 2, "error": {"code": -1, "message": "no"}},
)


def _legacy(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 5, "method": method, "params": {**params, "_meta": {"progressToken": "p"}}}


def _modern(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 5, "method": method, "params": {**params, "_meta": _ENVELOPE}}


CLIENT_MESSAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((LEGACY, _legacy(method, params)) for method, params in (*_REQUESTS, *_LEGACY_ONLY)),
    *((LEGACY, {"jsonrpc": "2.0", **told}) for told in _TOLD),
    *((MODERN, _modern(method, params)) for method, params in (*_REQUESTS, *_MODERN_ONLY)),
)

ODD_HEADERS: tuple[dict[str, str], ...] = (
    {"mcp-session-id": "other"}, {"mcp-protocol-version": "1999-01-01"}, {"mcp-method": "\xe4"},
    {"mcp-name": "=?base64?!?="},
    {"content-type": "text/plain"}, {"accept": "image/png"}, {"content-length": "3"}, {"last-event-id": "x" * 5_000},
    {"origin": "http://evil.example"}, {"authorization": "Bearer " + "t" * 5_000}, {"content-encoding": "gzip"},
    {"traceparent": "00-zz"}, {"transfer-encoding": "chunked"}, {"expect": "100-continue"},
    {"connection": "close, upgrade", "upgrade": "h2c"},
)  # fmt: skip
