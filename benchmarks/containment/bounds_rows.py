"""The attacks of `benchmarks.containment.bounds`, by bound: a table, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.client_inputs import CLIENT_INPUTS, NONE, ClientInput
from tests.hostile.deeds import HTTP, SSE, STDIO

from mcp_optimizer.limits import DEFAULT_LIMITS

HOSTILE = "hostile"
_MESSAGE = DEFAULT_LIMITS.message_bytes / 1_000_000
_REQUEST = DEFAULT_LIMITS.request_bytes / 1_000_000
_BY_NAME = {shown.name: shown for shown in CLIENT_INPUTS}


@dataclass(frozen=True)
class Row:
    """One attack: by a server that shows an input at some scale, or by a client that sends requests."""

    bound: str
    thrown: str
    input: str = ""
    wire: str = STDIO
    scale: int = 1
    megabytes: float = 0.0
    """The bound's own size, if it limits memory."""
    seconds: float = 8.0
    set_to: dict[str, Any] = field(default_factory=dict)
    """Bounds to lower, because reaching their defaults would take hours or gigabytes."""
    ask: tuple[str, dict[str, Any]] | None = None
    """What the gateway is asked meanwhile, instead of calls to the server."""
    argument: str = "x"
    requests: Callable[[], Iterable[ClientInput]] | None = None


def _named(name: str, times: int = 1) -> Callable[[], Iterable[ClientInput]]:
    return lambda: [_BY_NAME[name]] * times


def _body(path: str, megabytes: int, *, is_chunked: bool) -> Callable[[], Iterable[ClientInput]]:
    def requests() -> Iterable[ClientInput]:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:1\r\ncontent-type: application/json\r\naccept: */*\r\n".encode()
        )
        piece = b" " * 1_000_000
        if is_chunked:
            raw = head + b"transfer-encoding: chunked\r\n\r\n" + (b"f4240\r\n" + piece + b"\r\n") * megabytes
        else:
            raw = head + b"content-length: %d\r\n\r\n" % (megabytes * 1_000_000) + piece * megabytes
        yield ClientInput("body", raw=raw, stays_open=True)

    return requests


def _sessions(count: int) -> Callable[[], Iterable[ClientInput]]:
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"many","version":"1"}}}'
    )
    return lambda: (ClientInput("session", hello, NONE) for _ in range(count))


FIND = ("tools/call", {"name": "find_tool", "arguments": {"tool_description": "say it once more", "detail": "full"}})
CALL_WRONGLY = ("tools/call", {"name": "call_tool", "arguments": {
    "tool_name": "repeat", "server_name": HOSTILE, "parameters": {"one": "no such value"}}})  # fmt: skip

ROWS = (
    Row("message_bytes", "400 MB on stdout without a newline", "a line without an end", STDIO, 130, _MESSAGE),
    Row("message_bytes", "an HTTP body of 400 MB", "a body of blanks without end", HTTP, 130, _MESSAGE),
    Row("message_bytes", "600 MB as gzip of 600 kB", "a gzip bomb", HTTP, 60, _MESSAGE, 15),
    Row("message_bytes", "an SSE event of 400 MB", "an event without an end", HTTP, 130, _MESSAGE),
    Row("message_bytes", "an SSE event of 400 MB, older SSE", "an event without an end", SSE, 130, _MESSAGE),
    Row("message_bytes", "an event of 15 million lines", "an event of many lines without an end", HTTP, 250, _MESSAGE),
    Row("message_bytes", "5 million chunks of one byte", "chunks without an end", HTTP, 50, _MESSAGE),
    Row("message_bytes", "a header of 200 MB", "a header of ten megabytes", HTTP, 20, _MESSAGE),
    Row("message_bytes", "2 million headers", "a hundred thousand headers", HTTP, 20, _MESSAGE),
    Row("message_bytes", "an error message of 90 MB", "an error message of megabytes", STDIO, 30, _MESSAGE),
    Row("message_bytes", "instructions of 90 MB", "instructions are megabytes", STDIO, 30, _MESSAGE),
    Row("message_bytes", "a body that drips, and never ends", "a body that drips", HTTP, 100),
    Row("request_bytes", "a request of 300 MB", requests=_body("/mcp", 300, is_chunked=False), megabytes=_REQUEST),
    Row("request_bytes", "a request of 300 MB in chunks", megabytes=_REQUEST,
        requests=_body("/mcp", 300, is_chunked=True)),
    Row("request_bytes", "a login of 300 MB in chunks", megabytes=_REQUEST,
        requests=_body("/login", 300, is_chunked=True)),
    Row("batch_messages", "100,000 pings in one batch", "a hundred thousand pings in one batch"),
    Row("stderr_line", "400 MB on stderr without a newline", "stderr without newlines", STDIO, 130),
    Row("stderr_line", "400 MB of progress bars on stderr", "progress bars on stderr", STDIO, 130),
    Row("pending_questions", "100,000 questions to clients", "a flood of questions", STDIO, 50),
    Row("pending_replies", "1 million pings by a server that does not read",
        "a flood of pings by a server that does not read", STDIO, 50),
    Row("pending_replies", "calls of 5 MB to a server that does not read", "stops reading its stdin", STDIO,
        argument="a" * 5_000_000),
    Row("pending_notifications", "1 million log messages", "a flood of log messages", STDIO, 50),
    Row("pending_notifications", "1 million updated resources", "a flood of updated resources", STDIO, 50),
    Row("pending_notifications", "250,000 changed lists", "a flood of changed lists", STDIO, 50),
    Row("sessions", "2,000 sessions, the bound set to 500", requests=_sessions(2_000), set_to={"sessions": 500}),
    Row("tools", "100,000 tools", "ten thousand tools", STDIO, 10, seconds=15),
    Row("tools", "pages that never end", "pages that never end", STDIO),
    Row("tool_name", "a name of 300 kB", "a tool name of 300 kB"),
    Row("description", "a description of 30 MB", "a description of megabytes", STDIO, 10),
    Row("definition_bytes", "an enum of 200,000 values, found", "an enum of many values", STDIO, 10, ask=FIND),
    Row("schema_depth", "a schema of 1,000 levels", "an input schema a thousand levels deep"),
    Row("listed_items", "100,000 prompts", "ten thousand prompts", STDIO, 10, ask=("prompts/list", {})),
    Row("list_seconds", "a list of prompts that never comes", "a list of prompts that never comes",
        ask=("prompts/list", {})),
    Row("call_seconds", "progress for ever, the bound set to 3 s", "progress now and then, for ever",
        set_to={"call_seconds": 3}),
    Row("failed_checks", "pings that are never answered", "a ping is never answered", HTTP, seconds=130,
        ask=("tools/call", {"name": "list_tools", "arguments": {"server": HOSTILE}})),
    Row("expression", "a select of 600 kB", requests=_named("a select of 600 kB")),
    Row("expression_steps", "`[@,@]` piped 28 times", requests=_named("a select that doubles 28 times")),
    Row("reply_tokens", "an enum of 20,000 values, found", "an enum of many values", STDIO, ask=FIND),
    Row("reply_tokens", "an enum of 20,000 values, called wrongly", "an enum of many values", STDIO, ask=CALL_WRONGLY),
)  # fmt: skip
