"""A table of hostile event streams, with bad lines between messages, or a stream that ends in the wrong place."""

from __future__ import annotations

import json

from tests.hostile.deeds import (
    BEGIN,
    HTTP,
    HTTP_MODERN,
    SSE,
    STREAM,
    Deeds,
    Exit,
    Input,
    Pause,
    Say,
    Wire,
    only,
)

CALLS = "tools/call"
EVENTS = (HTTP, SSE)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def _event(fields: bytes, times: int = 1) -> Deeds:
    """These lines, between a message and the honest answer."""
    return lambda asked: [Say("{}"), Wire(fields, times * asked.scale), Say(asked.answer)]


STREAMS = (
    Input("a retry of 400 digits", CALLS, _event(b"retry: " + b"9" * 400 + b"\n\n"), EVENTS),
    Input(
        "a retry of 400 digits on a stream that ends",
        CALLS,
        lambda _a: [Say("{}"), Wire(b"id: 1\nretry: " + b"9" * 400 + b"\n\n"), Exit()],
        (HTTP, HTTP_MODERN),
    ),
    Input(
        "a retry of nothing on a stream that ends",
        CALLS,
        lambda _a: [Say("{}"), Wire(b"id: 1\nretry: 0\ndata: {}\n\n"), Exit()],
        (HTTP, HTTP_MODERN),
    ),
    Input("a retry that is negative", CALLS, lambda _a: [Say("{}"), Wire(b"id: 1\nretry: -1000\n\n"), Exit()], (HTTP,)),
    Input(
        "a standing stream that ends at once and retries at once",
        STREAM,
        only(Wire(b"id: 7\nretry: 0\n\n"), Exit()),
        (HTTP,),
    ),
    Input(
        "a standing stream with a retry of 400 digits",
        STREAM,
        only(Wire(b"retry: " + b"9" * 400 + b"\n\n"), Exit()),
        (HTTP,),
    ),
    Input(
        "an event id with NUL and odd bytes",
        CALLS,
        lambda _a: [Say("{}"), Wire(b"id: a\x00b\xff\x01\nretry: 1\n\n"), Exit()],
        (HTTP,),
    ),
    Input(
        "an event id with a carriage return",
        CALLS,
        lambda _a: [Say("{}"), Wire(b"id: a\rx-evil: 1\nretry: 1\n\n"), Exit()],
        (HTTP,),
    ),
    Input(
        "an event id of a megabyte",
        CALLS,
        lambda _a: [Say("{}"), Wire(b"id: " + b"i" * 1_000_000 + b"\nretry: 1\n\n"), Exit()],
        (HTTP,),
    ),
    Input("an event without an end", CALLS, _event(b"data: " + b"d" * 65_530, 48), EVENTS),
    Input("an event of many lines without an end", CALLS, _event(b"data: d\n", 60_000), EVENTS),
    Input("a field name without an end", CALLS, _event(b"f" * 65_536, 48), EVENTS),
    Input("comments without an end", CALLS, _event(b": nothing\n", 20_000), EVENTS),
    Input(
        "events of unknown kinds",
        CALLS,
        _event(b"event: endpoint\ndata: http://127.0.0.2/\n\nevent: \xff\ndata: x\n\n"),
        EVENTS,
    ),
    Input("events that are no JSON", CALLS, _event(b"data: {\n\ndata: \xff\xfe\n\ndata: [[[\n\n", 100), EVENTS),
    Input(
        "the answer on the standing stream",
        STREAM,
        only(*(Say(json.dumps({"jsonrpc": "2.0", "id": n, "result": {}})) for n in range(1, 200))),
        (HTTP, HTTP_MODERN),
    ),
    Input("a standing stream that is cut again and again", STREAM, only(Exit()), (HTTP, HTTP_MODERN)),
    Input(
        "an endpoint elsewhere",
        BEGIN,
        only(Wire(_STREAM + b"\r\nevent: endpoint\ndata: http://127.0.0.2:9/x\n\n"), Pause(0.2)),
        (SSE,),
    ),
    Input(
        "an endpoint that is a file",
        BEGIN,
        only(Wire(_STREAM + b"\r\nevent: endpoint\ndata: file:///etc/passwd\n\n"), Pause(0.2)),
        (SSE,),
    ),
    Input(
        "an endpoint of nonsense",
        BEGIN,
        only(Wire(_STREAM + b"\r\nevent: endpoint\ndata: http://[::1\n\n"), Pause(0.2)),
        (SSE,),
    ),
    Input("no endpoint at all", BEGIN, only(Wire(_STREAM + b"\r\n: wait\n\n"), Pause(0.2)), (SSE,)),
    Input(
        "a stream that is a page",
        BEGIN,
        only(Wire(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>")),
        (SSE,),
    ),
    Input("a stream that is refused", BEGIN, only(Wire(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")), (SSE,)),
)
