"""An MCP server on stdio whose tools do what their argument says; every call is a line in a file.

python each.py FILE: `look` (declared as reading), `change` and `agree` take a `value`: "ask" asks the client, "hang"
never answers, "fail" is an error of the tool, "large" returns much, and anything else comes back as JSON.
"""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
from typing import Any

LARGE = 400_000
FORM = {
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
PARAMETERS = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
TOOLS = [
    {"name": "look", "inputSchema": PARAMETERS, "annotations": {"readOnlyHint": True}},
    {"name": "change", "inputSchema": PARAMETERS},
    {"name": "agree", "inputSchema": PARAMETERS},
]

writing = threading.Lock()
numbers = itertools.count(1)
answers: dict[str, queue.Queue[dict[str, Any]]] = {}


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def asked() -> str:
    number = f"question {next(numbers)}"
    answers[number] = queue.Queue()
    send({"id": number, "method": "elicitation/create", "params": FORM})
    said = answers[number].get().get("result") or {}
    return str((said.get("content") or {}).get("name", said.get("action", "refused")))


def done(tool: str, value: str) -> dict[str, Any] | None:
    with writing, open(sys.argv[1], "a", encoding="utf-8") as calls:
        calls.write(f"{tool} {value}\n")
    if value == "hang":
        return None
    if value == "fail":
        return text("it did not work", isError=True)
    said = asked() if value == "ask" else "x" * LARGE if value == "large" else value
    return text(json.dumps({"tool": tool, "said": said, "length": len(said)}))


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "each", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    return done(params["name"], params["arguments"]["value"]) if method == "tools/call" else {}


def answer(message: dict[str, Any]) -> None:
    if (result := result_of(message["method"], message.get("params") or {})) is not None:
        send({"id": message["id"], "result": result})


for line in sys.stdin:
    received = json.loads(line)
    if "method" not in received:
        answers[received["id"]].put(received)
    elif "id" in received:
        threading.Thread(target=answer, args=(received,), daemon=True).start()
