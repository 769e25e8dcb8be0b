"""A table of hostile inputs from clients: requests to the gateway over HTTP, in either era."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

LEGACY, MODERN, NONE = "legacy", "modern", "none"
_DEEP = "[" * 100_000 + "]" * 100_000


@dataclass(frozen=True)
class ClientInput:
    """One request that no client should make."""

    name: str
    body: bytes = b""
    era: str = LEGACY
    verb: str = "POST"
    path: str = "/mcp"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    """Bytes to send on a bare connection, instead of everything above."""
    times: int = 1
    stays_open: bool = False
    """Whether the gateway may leave it unanswered: a stream, or a request that never ends."""


def _ask(method: str, params: Any = None, number: Any = 5, **more: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params is not None else {})}
    return json.dumps(message | more).encode()


def _text(method: str, params: str, number: str = "5") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}'.encode()


def _tell(method: str, params: str) -> bytes:
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'.encode()


def _tool(name: str, **arguments: Any) -> bytes:
    return _ask("tools/call", {"name": name, "arguments": arguments})


def _echo(select: str) -> bytes:
    return _tool("call_tool", tool_name="echo", server_name="witness", parameters={"value": "x"}, select=select)


def _piped(times: int) -> str:
    return " | ".join(["[@,@]"] * times)


EXPRESSIONS = (
    ClientInput("a select that doubles 24 times", _echo(_piped(24))),
    ClientInput("a select that doubles 28 times", _echo(_piped(28))),
    ClientInput("a select that doubles 60 times", _echo(_piped(60))),
    ClientInput("a select of 600 kB", _echo(" || ".join(["a"] * 150_000))),
    ClientInput("a select nested 10,000 deep", _echo("(" * 10_000 + "@" + ")" * 10_000)),
    ClientInput("a select nested in lists", _echo("[" * 5_000 + "@" + "]" * 5_000)),
    ClientInput("a select that maps a map", _echo("map(&[@,@], " * 20 + "[@]" + ")" * 20)),
    ClientInput(
        "a select that sorts and joins what it doubled", _echo(_piped(20) + " | join(',', to_array(to_string(@)))")
    ),
    ClientInput("a select that is no expression", _echo("[?[[`{")),
    ClientInput("a select that is a list", _tool("call_tool", tool_name="echo", parameters={}, select=["@"])),
)

OWN_TOOLS = (
    ClientInput("find_tool with a description of 5 MB", _tool("find_tool", tool_description="word " * 1_000_000)),
    ClientInput(
        "find_tool with a million words", _tool("find_tool", tool_description=" ".join(map(str, range(500_000))))
    ),
    ClientInput("find_tool with a description that is a list", _tool("find_tool", tool_description=[["a"]])),
    ClientInput(
        "find_tool with odd limits",
        _text("tools/call", '{"name":"find_tool","arguments":{"tool_description":"a","limit":1e999}}'),
    ),
    ClientInput(
        "find_tool with a limit of 400 digits",
        _text("tools/call", f'{{"name":"find_tool","arguments":{{"tool_description":"a","limit":{"9" * 400}}}}}'),
    ),
    ClientInput("find_tool with a detail that is an object", _tool("find_tool", tool_description="a", detail={"a": 1})),
    ClientInput(
        "find_tool with NUL and half a surrogate pair",
        _text(
            "tools/call",
            '{"name":"find_tool","arguments":{"tool_description":"\\u0000\\ud800","tool_keywords":"\\udfff"}}',
        ),
    ),
    ClientInput("call_tool with a name of 300 kB", _tool("call_tool", tool_name="x" * 300_000, parameters={})),
    ClientInput("call_tool with a name that is a list", _tool("call_tool", tool_name=["echo"], parameters={})),
    ClientInput(
        "call_tool with parameters a thousand levels deep",
        _text(
            "tools/call",
            '{"name":"call_tool","arguments":{"tool_name":"echo","parameters":' + '{"a":' * 1_000 + "1" + "}" * 1_002,
        ),
    ),
    ClientInput("call_tool with parameters as text of a list", _tool("call_tool", tool_name="echo", parameters="[1]")),
    ClientInput(
        "call_tool of call_tool", _tool("call_tool", tool_name="call_tool", parameters={"tool_name": "call_tool"})
    ),
    ClientInput("list_tools from 1e999 on", _text("tools/call", '{"name":"list_tools","arguments":{"offset":1e999}}')),
    ClientInput("list_tools of a server with a name of 1 MB", _tool("list_tools", server="s" * 1_000_000)),
    ClientInput("read_result of a path", _tool("read_result", result_id="../../etc/passwd")),
    ClientInput("read_result from far below", _tool("read_result", result_id="r", offset=-(10**30), limit=10**30)),
    ClientInput("a tool whose name is an object", _ask("tools/call", {"name": {"a": 1}, "arguments": {}})),
    ClientInput("arguments that are a list", _ask("tools/call", {"name": "find_tool", "arguments": [1]})),
    ClientInput("params that are a list", _ask("tools/call", [1, 2])),
    ClientInput("params that are text", _ask("tools/list", "all")),
)

MESSAGES = (
    ClientInput("no JSON", b"{"),
    ClientInput("JSON that is a number", b"7"),
    ClientInput("an empty body", b""),
    ClientInput("invalid UTF-8", b'{"jsonrpc":"2.0","id":5,"method":"\xff\xfe"}'),
    ClientInput("NUL bytes", b"\x00" * 1_000),
    ClientInput("JSON a hundred thousand levels deep", _text("tools/list", _DEEP)),
    ClientInput("a batch of ten thousand", b"[" + b",".join([_ask("ping")] * 10_000) + b"]"),
    ClientInput("NaN and Infinity", _text("tools/list", '{"a":NaN,"b":-Infinity}')),
    ClientInput("keys that stand twice", b'{"jsonrpc":"2.0","id":5,"id":[],"method":"ping","method":7}'),
    ClientInput("an id that is a list", _text("ping", "{}", "[]")),
    ClientInput("an id that is an object", _text("ping", "{}", "{}")),
    ClientInput("an id of 1e999", _text("ping", "{}", "1e999")),
    ClientInput("an id of 400 digits", _text("ping", "{}", "9" * 400)),
    ClientInput("an id of a megabyte", _text("ping", "{}", '"' + "i" * 1_000_000 + '"')),
    ClientInput("an id that is null", _text("ping", "{}", "null")),
    ClientInput("one id for a hundred requests", _ask("tools/list"), times=100),
    ClientInput("a method of a megabyte", _ask("m" * 1_000_000)),
    ClientInput("a method that is a list", b'{"jsonrpc":"2.0","id":5,"method":["a"]}'),
    ClientInput(
        "a second handshake", _ask("initialize", {"protocolVersion": "x", "capabilities": [], "clientInfo": 5})
    ),
    ClientInput(
        "a handshake of odd types",
        _ask("initialize", {"protocolVersion": ["a"], "capabilities": "all", "clientInfo": {"name": {"a": 1}}}),
        NONE,
    ),
    ClientInput(
        "a handshake of megabytes",
        _ask(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"x": "y" * 3_000_000},
                "clientInfo": {"name": "n" * 3_000_000, "version": "1"},
            },
        ),
        NONE,
    ),
    ClientInput("a cursor of odd types", _ask("tools/list", {"cursor": {"a": [1]}})),
    ClientInput("a cursor of a megabyte", _ask("tools/list", {"cursor": "c" * 1_000_000})),
    ClientInput("a log level that does not exist", _ask("logging/setLevel", {"level": ["all"]})),
    ClientInput("a resource of nonsense", _ask("resources/read", {"uri": "http://[::1"})),
    ClientInput("a resource with a name of a megabyte", _ask("resources/read", {"uri": "a://" + "u" * 1_000_000})),
    ClientInput("a subscription to nothing", _ask("resources/subscribe", {"uri": {"a": 1}})),
    ClientInput("a completion of odd types", _ask("completion/complete", {"ref": [], "argument": {"name": 5}})),
    ClientInput("a prompt with odd arguments", _ask("prompts/get", {"name": [], "arguments": {"a": {"b": 1}}})),
    ClientInput("cancelled for odd ids", _tell("notifications/cancelled", '{"requestId":[1]}')),
    ClientInput("progress with an odd token", _tell("notifications/progress", '{"progressToken":{},"progress":"a"}')),
    ClientInput("changed roots as a list", _tell("notifications/roots/list_changed", "[1]"), times=200),
    ClientInput("an answer to a question that nobody asked", b'{"jsonrpc":"2.0","id":[],"result":{}}'),
    ClientInput("an error as an answer, of odd types", b'{"jsonrpc":"2.0","id":1,"error":{"code":"a","message":[]}}'),
)

MODERN_MESSAGES = (
    ClientInput("no envelope", _ask("tools/list", {}), MODERN),
    ClientInput("an envelope that is text", _ask("tools/list", {"_meta": "text"}), MODERN),
    ClientInput(
        "an envelope of odd types",
        _ask(
            "tools/list",
            {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": ["2026-07-28"],
                    "io.modelcontextprotocol/clientCapabilities": "all",
                    "io.modelcontextprotocol/clientInfo": 5,
                }
            },
        ),
        MODERN,
    ),
    ClientInput(
        "a version that does not exist", _ask("tools/list", {}), MODERN, headers={"mcp-protocol-version": "9999"}
    ),
    ClientInput(
        "headers that say something else",
        _tool("find_tool", tool_description="a"),
        MODERN,
        headers={"mcp-method": "tools/list", "mcp-name": "=?base64?////?="},
    ),
    ClientInput(
        "an input response to no question",
        _ask(
            "tools/call",
            {
                "name": "call_tool",
                "arguments": {"tool_name": "echo", "parameters": {}},
                "requestState": "\x00" * 10_000,
                "inputResponses": [5],
            },
        ),
        MODERN,
    ),
    ClientInput(
        "a state that is a list",
        _ask(
            "tools/call",
            {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {}}, "requestState": [1]},
        ),
        MODERN,
    ),
    ClientInput(
        "a subscription to a hundred thousand resources",
        _ask(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": [f"a://{n}" for n in range(100_000)]}}
        ),
        MODERN,
        stays_open=True,
    ),
    ClientInput(
        "a subscription of odd types", _ask("subscriptions/listen", {"notifications": [5]}), MODERN, stays_open=True
    ),
    ClientInput("a discovery with params as a list", _ask("server/discover", [1]), MODERN),
)

_HOST = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:1\r\ncontent-type: application/json\r\naccept: application/json\r\n"

CONNECTIONS = (
    ClientInput("no HTTP", raw=b"\x16\x03\x01\x02\x00" + b"\xff" * 1_000 + b"\r\n\r\n"),
    ClientInput("a head without an end", raw=b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, stays_open=True),
    ClientInput(
        "a header of 3 MB", raw=b"GET /health HTTP/1.1\r\nx: " + b"h" * 3_000_000 + b"\r\n\r\n", stays_open=True
    ),
    ClientInput("a length that is negative", raw=_HOST + b"content-length: -7\r\n\r\n{}"),
    ClientInput("a length that is too long", raw=_HOST + b"content-length: 999999\r\n\r\n{}", stays_open=True),
    ClientInput(
        "a length of 70 MB", raw=_HOST + b"content-length: 70000000\r\n\r\n" + b" " * 1_000_000, stays_open=True
    ),
    ClientInput(
        "a body of 70 MB", raw=_HOST + b"content-length: 70000000\r\n\r\n" + b" " * 70_000_000, stays_open=True
    ),
    ClientInput(
        "chunks of 70 MB",
        raw=_HOST
        + b"transfer-encoding: chunked\r\n\r\n"
        + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 70
        + b"0\r\n\r\n",
        stays_open=True,
    ),
    ClientInput(
        "a login of 70 MB in chunks",
        raw=_HOST.replace(b"/mcp", b"/login")
        + b"transfer-encoding: chunked\r\n\r\n"
        + (b"100000\r\n" + b"a" * 0x100000 + b"\r\n") * 70
        + b"0\r\n\r\n",
        stays_open=True,
    ),
    ClientInput("chunks that are none", raw=_HOST + b"transfer-encoding: chunked\r\n\r\nzz\r\n"),
    ClientInput(
        "a hundred requests at once, unread", raw=(_HOST + b"content-length: 2\r\n\r\n{}") * 100, stays_open=True
    ),
    ClientInput("a session that does not exist", _ask("tools/list"), NONE, headers={"mcp-session-id": "s" * 5_000}),
    ClientInput("a session of odd characters", _ask("tools/list"), NONE, headers={"mcp-session-id": "\xe4{}"}),
    ClientInput("a stream without a session", verb="GET", era=NONE, headers={"accept": "text/event-stream"}),
    ClientInput("an event that never was", verb="GET", headers={"last-event-id": "9" * 400}, stays_open=True),
    ClientInput("another verb", verb="PATCH"),
    ClientInput("an end of a session that is not one's own", verb="DELETE", era=NONE, headers={"mcp-session-id": "x"}),
    ClientInput("no content type", _ask("ping"), headers={"content-type": "\xff"}),
    ClientInput("a host that is another", _ask("ping"), NONE, headers={"host": "evil.example"}),
    ClientInput("an address of nonsense", verb="GET", era=NONE, path="/tools/%00/%ff%fe/../../x"),
    ClientInput("a search for a megabyte", verb="GET", era=NONE, path="/search?q=" + "a" * 60_000),
    ClientInput("an answer that is compressed", b"\x1f\x8b" + b"\x00" * 100, headers={"content-encoding": "gzip"}),
)

CLIENT_INPUTS = (*EXPRESSIONS, *OWN_TOOLS, *MESSAGES, *MODERN_MESSAGES, *CONNECTIONS)
