"""An MCP server on stdio that asks its client any question, whether or not the client declared support for it.

python asking.py [--era modern]: its tool `ask` takes a `method` and `params`, sends that question, and returns the
answer or the refusal as text. With `--era modern` the question is part of the result.
"""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
from typing import Any

MODERN = "--era" in sys.argv
META = "io.modelcontextprotocol/serverInfo"
TOOL = {
    "name": "ask",
    "description": "Ask the client for something",
    "inputSchema": {"type": "object", "properties": {"method": {"type": "string"}, "params": {"type": "object"}}},
}

writing = threading.Lock()
numbers = itertools.count(1)
answers: dict[str, queue.Queue[dict[str, Any]]] = {}


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}], "resultType": "complete"}


def asked(arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    question = {"method": arguments["method"], "params": arguments.get("params") or {}}
    if MODERN:
        if "inputResponses" in params:
            return text(params["inputResponses"])
        return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
    number = f"question {next(numbers)}"
    answers[number] = queue.Queue()
    send({"id": number, **question})
    return text(answers[number].get())


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "server/discover" and MODERN:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
        return {**found, "_meta": {META: {"name": "asking", "version": "1"}}, "ttlMs": 0, "cacheScope": "private"}
    if method == "initialize" and not MODERN:
        info = {"name": "asking", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return asked(params.get("arguments") or {}, params) if method == "tools/call" else None


def answer(message: dict[str, Any]) -> None:
    result = result_of(message["method"], message.get("params") or {})
    if message["method"] == "initialize" and MODERN:
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        send({"id": message["id"], "error": {"code": -32022, "message": "too old", "data": data}})
    elif result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        send({"id": message["id"], "result": result})


for line in sys.stdin:
    received = json.loads(line)
    if "method" not in received:
        answers[received["id"]].put({key: received[key] for key in ("result", "error") if key in received})
    elif "id" in received:
        threading.Thread(target=answer, args=(received,), daemon=True).start()
