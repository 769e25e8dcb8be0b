"""An MCP server on stdio in plain Python: starts in milliseconds, and misbehaves on request.

python plain.py NAME [--tools N] [--page N] [--mode MODE] [--delay S] [--pid-file FILE]
Modes: ok, hang (never answers), garbage (prints text forever), exit (exits at once), dies-when-probed (exits on any
request before initialize, as some SDKs do), one-invalid (one entry of its listing is not a valid tool), draws (has a
tool `draw` with two related parameters), waits (has a tool `wait` that answers when the named pipe that it is told has
been opened and closed by a writer), hostile (has a tool whose texts contain markup, script and characters that
reverse the writing direction).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import struct
import sys
import threading
import time
import zlib
from typing import Any

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (
            (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(b"\0\0")),
            (b"IEND", b""),
        )
    )
).decode()

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'></pre></code>"
    "<a href='javascript:window.hacked = 3'>here</a> \u202eelttil a ma I\u202c \u2066\u200b\x1b[31m \" onload=\"x"
)

writing = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def tool(name: str, description: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def tools_of(name: str, count: int) -> list[dict[str, Any]]:
    special = [
        tool("echo", "Say something back", {"value": {"type": "string"}}, annotations={"readOnlyHint": True}),
        tool("sleep", "Wait before answering", {"seconds": {"type": "number"}}),
        tool("die", "End the process in the middle of a call"),
        tool("picture", "Draw a picture"),
        tool("facts", "Structured facts", outputSchema={"type": "object"}, futureField={"kept": True}),
        tool("refuse", "Answer with a protocol error"),
        tool("fail", "Answer with a tool error"),
        tool("environment", "The names of the environment variables of this process"),
        tool("grow", "Add a tool to the list"),
    ]
    plain = [
        tool(
            f"{name}_action_{number}",
            f"Perform action number {number} of {name} on a thing",
            {"id": {"type": "string"}},
        )
        for number in range(max(0, count - len(special)))
    ]
    return (special + plain)[:count]


class PlainServer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tools = tools_of(options.name, options.tools)
        self.page = options.page or max(1, len(self.tools))
        if options.mode == "one-invalid":
            self.tools.insert(1, {"name": "broken", "inputSchema": "not an object"})
        if options.mode == "draws":
            place = {"type": "integer"}
            more = {"outputSchema": {"type": "object", "properties": {"drawn": {"type": "string"}}}}
            properties = {"position_x": place, "position_y": place}
            self.tools.append(tool("draw", "Draw something at a place", properties, **more))

        if options.mode == "waits":
            self.tools.append(tool("wait", "Wait for a writer", {"pipe": {"type": "string"}}))
        if options.mode == "hostile":
            self.tools.insert(0, tool("innocent", HOSTILE, {HOSTILE: {"type": "string", "description": HOSTILE}}))

    def answer(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return
        try:
            result = self.result(method, params)
        except LookupError as error:
            send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": str(error)}})
            return
        except ValueError as error:
            refusal = {"code": -32055, "message": str(error), "data": {"why": "asked to"}}
            send({"jsonrpc": "2.0", "id": message["id"], "error": refusal})
            return
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def result(self, method: str | None, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": self.options.name, "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            start = int(params.get("cursor") or 0)
            end = start + self.page
            more = {"nextCursor": str(end)} if end < len(self.tools) else {}
            return {"tools": self.tools[start:end], **more}
        if method == "tools/call":
            return self.call(params["name"], params.get("arguments") or {})
        raise LookupError(f"Method not found: {method}")

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "sleep":
            time.sleep(arguments.get("seconds", 1))
        elif name == "wait":
            with open(arguments["pipe"]) as pipe:
                pipe.read()
        elif name == "die":
            os._exit(7)
        elif name == "picture":
            return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png", "unknownField": 1}]}
        elif name == "facts":
            facts = {"rows": [{"id": 1}], "total": 1}
            return text(json.dumps(facts), structuredContent=facts, _meta={"upstream": "kept"}, futureField=[1])
        elif name == "refuse":
            raise ValueError("I will not")
        elif name == "fail":
            return text("it did not work", isError=True)
        elif name == "environment":
            return text(json.dumps(sorted(os.environ)))
        elif name == "grow":
            self.tools.append(tool("grown", "A tool that appeared later"))
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text(json.dumps({"server": self.options.name, "tool": name, "arguments": arguments}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--tools", type=int, default=9)
    parser.add_argument("--page", type=int, default=0)
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--pid-file")
    options = parser.parse_args()
    if options.pid_file:
        with open(options.pid_file, "w") as file:
            file.write(str(os.getpid()))
    time.sleep(options.delay)
    if options.mode == "exit":
        sys.exit("the key is missing")
    while options.mode == "garbage":
        print("Welcome! This is not MCP.", flush=True)
        time.sleep(0.001)
    server = PlainServer(options)
    initialized = False
    for line in sys.stdin:
        if options.mode == "hang":
            continue
        message = json.loads(line)
        initialized = initialized or message.get("method") == "initialize"
        if options.mode == "dies-when-probed" and not initialized:
            sys.exit("expected initialize")
        # One thread per request, because many calls may be in progress at once.
        threading.Thread(target=server.answer, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
