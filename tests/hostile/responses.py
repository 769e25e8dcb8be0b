"""A table of hostile HTTP responses, with a bad head, length, encoding, or pace of the body."""

from __future__ import annotations

import gzip
import zlib

from tests.hostile.deeds import (
    HELLO,
    HTTP,
    OVER_HTTP,
    Asked,
    Deed,
    Exit,
    Input,
    Pause,
    Wire,
    only,
    wire,
)

LISTS = "tools/list"
CALLS = "tools/call"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_SESSION = b"mcp-session-id: "


def _with_head(head: bytes, asked: Asked) -> list[Deed]:
    """The honest answer with a different head."""
    body = asked.answer.encode()
    return [Wire(head + b"content-length: %d\r\n\r\n" % len(body) + body)]


def _statuses(asked: Asked) -> list[Deed]:
    """A different status for each request, from 100 to 599."""
    status = 100 + (int(asked.id) * 37) % 500
    body = asked.answer.encode()
    head = b"HTTP/1.1 %d Odd\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    return [Wire(head + (b"" if status < 200 or status in (204, 304) else body))]


def _gzip_bomb(asked: Asked) -> list[Deed]:
    """Ten megabytes of spaces before the answer, compressed to ten kilobytes."""
    blanks, count = b" " * 1_000_000, 10 * asked.scale
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # After a full flush the same input compresses to the same bytes, so one compressed block can be repeated.
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.compress(asked.answer.encode()) + packer.flush()
    check = 0
    for piece in (*[blanks] * count, asked.answer.encode()):
        check = zlib.crc32(piece, check)
    size = (len(blanks) * count + len(asked.answer.encode())) & 0xFFFFFFFF
    head, tail = b"\x1f\x8b\x08\0\0\0\0\0\0\xff", check.to_bytes(4, "little") + size.to_bytes(4, "little")
    packed = head + block * count + end + tail
    return [Wire(_JSON + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed)]


def _redirect(location: bytes, status: int = 307) -> bytes:
    return b"HTTP/1.1 %d Elsewhere\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % (status, location)


def _dripping(head: bytes, data: bytes, times: int) -> list[Deed]:
    return [Wire(head), *(deed for _ in range(times) for deed in (Wire(data), Pause(0.05)))]


RESPONSES = (
    Input("every status there is", CALLS, _statuses, OVER_HTTP),
    Input("every status there is at the handshake", HELLO, _statuses, OVER_HTTP),
    Input("a status of four digits", CALLS, wire(b"HTTP/1.1 9999 Odd\r\ncontent-length: 0\r\n\r\n"), OVER_HTTP),
    Input("202 to a request", CALLS, wire(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"), OVER_HTTP),
    Input("204 to a request", CALLS, wire(b"HTTP/1.1 204 No Content\r\n\r\n"), OVER_HTTP),
    Input("404 in the middle of a session", CALLS, wire(b"HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n"), OVER_HTTP),
    Input(
        "500 with a page",
        CALLS,
        wire(b"HTTP/1.1 500 Oh\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"),
        OVER_HTTP,
    ),
    Input("interim answers without end", CALLS, wire(b"HTTP/1.1 103 Early Hints\r\n\r\n", times=20_000), OVER_HTTP),
    Input(
        "an upgrade to another protocol",
        CALLS,
        wire(b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nPRI * HTTP/2.0\r\n\r\n"),
        OVER_HTTP,
    ),
    Input("a gzip bomb", CALLS, _gzip_bomb, OVER_HTTP),
    Input(
        "gzip that is none", CALLS, wire(_JSON + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\nplain"), OVER_HTTP
    ),
    Input(
        "gzip that ends too soon",
        CALLS,
        lambda a: [
            Wire(_JSON + b"content-encoding: gzip\r\nconnection: close\r\n\r\n" + gzip.compress(a.answer.encode())[:-9])
        ],
        OVER_HTTP,
    ),
    Input(
        "an encoding that does not exist",
        CALLS,
        lambda a: _with_head(_JSON + b"content-encoding: smoke\r\n", a),
        OVER_HTTP,
    ),
    Input(
        "a length that is too long",
        CALLS,
        lambda a: [Wire(_JSON + b"content-length: 99999\r\n\r\n" + a.answer.encode())],
        OVER_HTTP,
    ),
    Input(
        "a length that is too short",
        CALLS,
        lambda a: [Wire(_JSON + b"content-length: 3\r\n\r\n" + a.answer.encode())],
        OVER_HTTP,
    ),
    Input("a length that is negative", CALLS, wire(_JSON + b"content-length: -5\r\n\r\n{}"), OVER_HTTP),
    Input("a length of 400 digits", CALLS, wire(_JSON + b"content-length: " + b"9" * 400 + b"\r\n\r\n{}"), OVER_HTTP),
    Input("two lengths", CALLS, wire(_JSON + b"content-length: 2\r\ncontent-length: 9\r\n\r\n{}"), OVER_HTTP),
    Input("chunks that are none", CALLS, wire(_JSON + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n"), OVER_HTTP),
    Input(
        "chunks without an end",
        CALLS,
        lambda a: [Wire(_JSON + b"transfer-encoding: chunked\r\n\r\n"), Wire(b"1\r\n \r\n", 100_000 * a.scale)],
        OVER_HTTP,
    ),
    Input(
        "a body that drips",
        CALLS,
        lambda a: _dripping(_JSON + b"content-length: 1000\r\n\r\n", b" ", 40 * a.scale),
        OVER_HTTP,
    ),
    Input(
        "a head that drips",
        CALLS,
        lambda a: _dripping(b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n", 40 * a.scale),
        OVER_HTTP,
    ),
    Input(
        "a header of ten megabytes",
        CALLS,
        lambda a: [Wire(_JSON + b"x-long: "), Wire(b"h" * 65_536, 150 * a.scale), Wire(b"\r\n\r\n{}")],
        OVER_HTTP,
    ),
    Input(
        "a hundred thousand headers",
        CALLS,
        lambda a: [Wire(_JSON), Wire(b"x-more: 1\r\n", 100_000 * a.scale), Wire(b"content-length: 2\r\n\r\n{}")],
        OVER_HTTP,
    ),
    Input(
        "headers with odd bytes", CALLS, wire(_JSON + b"x\x00y: \xff\xfe\r\n: empty\r\nno colon\r\n\r\n{}"), OVER_HTTP
    ),
    Input("no HTTP at all", CALLS, wire(b"SSH-2.0-OpenSSH_9.6\r\n"), OVER_HTTP),
    Input(
        "an answer before the question",
        LISTS,
        lambda a: [*_with_head(_JSON, a), Wire(_JSON + b"content-length: 2\r\n\r\n{}")],
        OVER_HTTP,
    ),
    Input(
        "a connection cut in the middle of an answer",
        CALLS,
        lambda a: [Wire(_JSON + b"content-length: %d\r\n\r\n" % len(a.answer) + a.answer.encode()[:20]), Exit()],
        OVER_HTTP,
    ),
    Input("a connection cut before an answer", CALLS, only(Exit()), OVER_HTTP),
    Input("a redirect to itself", CALLS, wire(_redirect(b"/mcp")), OVER_HTTP),
    Input("a redirect to a file", CALLS, wire(_redirect(b"file:///etc/passwd")), OVER_HTTP),
    Input("a redirect to another host", HELLO, wire(_redirect(b"http://127.0.0.2:9/mcp", 308)), OVER_HTTP),
    Input("a redirect to nonsense", CALLS, wire(_redirect(b"http://[::1:\x7f\xff/", 302)), OVER_HTTP),
    Input("a redirect of a megabyte", CALLS, wire(_redirect(b"http://127.0.0.1/" + b"r" * 1_000_000)), OVER_HTTP),
    Input(
        "a content type of nonsense",
        CALLS,
        lambda a: _with_head(b"HTTP/1.1 200 OK\r\ncontent-type: \xff;;=\r\n", a),
        OVER_HTTP,
    ),
    Input("no content type", CALLS, lambda a: _with_head(b"HTTP/1.1 200 OK\r\n", a), OVER_HTTP),
    Input(
        "events that are called JSON", CALLS, wire(_JSON + b"content-length: 14\r\n\r\ndata: {}\n\n\n\n\n\n"), OVER_HTTP
    ),
    Input("JSON that is called events", CALLS, lambda a: _with_head(_STREAM, a), OVER_HTTP),
    Input(
        "a session of a megabyte",
        HELLO,
        lambda a: _with_head(_JSON + _SESSION + b"s" * 1_000_000 + b"\r\n", a),
        (HTTP,),
    ),
    Input(
        "a session of odd characters",
        HELLO,
        lambda a: _with_head(_JSON + _SESSION + b"\xff\x01 \xe4{}\r\n", a),
        (HTTP,),
    ),
    Input(
        "cookies without number",
        HELLO,
        lambda a: _with_head(_JSON + b"".join(b"set-cookie: c%d=%b\r\n" % (n, b"v" * 3_000) for n in range(1_000)), a),
        OVER_HTTP,
    ),
    Input("invalid UTF-8 in a body", CALLS, wire(_JSON + b'content-length: 8\r\n\r\n{"\xff\xfe": 1}'[:40]), OVER_HTTP),
    Input("a body of nothing", CALLS, wire(_JSON + b"content-length: 0\r\n\r\n"), OVER_HTTP),
    Input(
        "a body of blanks without end",
        CALLS,
        lambda a: [Wire(_JSON + b"connection: close\r\n\r\n"), Wire(b" " * 65_536, 48 * a.scale)],
        OVER_HTTP,
    ),
)
