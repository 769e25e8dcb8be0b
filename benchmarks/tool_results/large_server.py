"""A server whose tools return fifty megabytes of one kind or another, over stdio or HTTP.

Started by `large` and by tests: python large_server.py [--http PORT --body json|sse]

A result is made when `prepare` is called, so that the call itself only sends it.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

LINE = "{}: the quick brown fox jumps over the lazy dog, and then rests for a while beside the old stone bridge\n"
ROW = {"id": 0, "name": "customer name", "email": "someone@example.com", "note": 'a "quoted" note'}
KINDS = ("lines", "short", "wide", "json", "structured", "only", "file", "blocks", "image")
_PIECE = 1 << 16

made: dict[str, bytes] = {}


def rows(size: int) -> dict[str, Any]:
    """About this many bytes once they are escaped inside a string."""
    return {"items": [{**ROW, "id": number} for number in range(size // 118)]}


def plain_lines(size: int) -> str:
    return "".join(LINE.format(number) for number in range(size // len(LINE)))


def result(kind: str, size: int) -> dict[str, Any]:
    match kind:
        case "lines":
            return text(plain_lines(size))
        case "short":
            return text("1234567\n" * (size // 9))
        case "wide":
            # This one character makes each of its neighbours take four bytes in memory.
            return text("\U0001f600" + plain_lines(size))
        case "json":
            return text(json.dumps(rows(size)))
        case "structured":
            value = rows(size // 2)
            return text(json.dumps(value), structuredContent=value)
        case "only":
            return {"content": [], "structuredContent": rows(size * 118 // 106)}
        case "file":
            content = plain_lines(size // 2)
            return text(content, structuredContent={"content": content})
        case "blocks":
            return {"content": [{"type": "text", "text": "x" * 1_000 + str(n)} for n in range(size // 1_036)]}
        case "image":
            data = base64.b64encode(os.urandom(size * 3 // 4)).decode()
            return {"content": [{"type": "image", "mimeType": "image/png", "data": data}]}
    return text("echo")


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def answer(message: dict[str, Any]) -> bytes:
    """The whole response to a message."""
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        kind, size = params["name"], params["arguments"].get("size", 0)
        if kind == "prepare":
            kind = params["arguments"]["kind"]
            made[kind] = json.dumps(result(kind, size), ensure_ascii=False).encode()
            return whole(message["id"], json.dumps(text("prepared")).encode())
        return whole(message["id"], made.get(kind) or json.dumps(result(kind, size)).encode())
    said: dict[str, Any] = {}
    if method == "initialize":
        about = {"name": "large", "version": "1"}
        said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        properties = {"size": {"type": "integer"}, "kind": {"type": "string"}}
        schema = {"type": "object", "properties": properties}
        names = (*KINDS, "echo", "prepare")
        said = {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}
    elif method != "ping":
        error = {"code": -32601, "message": method}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
    return whole(message["id"], json.dumps(said).encode())


def whole(number: Any, said: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(number).encode(), said)


def serve_stdio() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(answer(message) + b"\n")
            sys.stdout.buffer.flush()


def serve_http(port: int, body: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    async def post(request: Request) -> Response:
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        said = answer(message)
        kind = "application/json"
        if body == "sse" and message["method"] == "tools/call":
            said, kind = b"event: message\r\ndata: " + said + b"\r\n\r\n", "text/event-stream"

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(said), _PIECE):
                yield said[at : at + _PIECE]

        return StreamingResponse(pieces(), media_type=kind)

    uvicorn.run(Starlette(routes=[Route("/mcp", post, methods=["POST"])]), port=port, log_level="critical")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", type=int)
    parser.add_argument("--body", choices=["json", "sse"], default="json")
    options = parser.parse_args()
    if options.http is None:
        serve_stdio()
    else:
        serve_http(options.http, options.body)


if __name__ == "__main__":
    main()
