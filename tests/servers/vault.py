"""A legacy MCP server on stdio in plain Python with something of everything: tools of each class, a prompt, a resource,
a template, completion, subscriptions, log messages and questions.

python vault.py NAME: `touch` changes the resource, `log` sends its text as a log message, `ask` puts its text to the
user, `read_book` returns as many rows as it is told, each with its text.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import sys
import threading
from typing import Any

NAME = sys.argv[1]
URI = f"{NAME}://note"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
READS = {"readOnlyHint": True, "openWorldHint": False}
BOOK = {"type": "object", "properties": {"text": {"type": "string"}, "rows": {"type": "integer"}}}
TOOLS = [
    {"name": f"read_{NAME}", "description": f"Read the note of {NAME}", "inputSchema": TEXT, "annotations": READS},
    {"name": f"read_{NAME}_book", "description": f"Read a book of {NAME}", "inputSchema": BOOK, "annotations": READS},
    {"name": f"write_{NAME}", "description": f"Write the note of {NAME}", "inputSchema": TEXT},
    {"name": f"delete_{NAME}", "description": f"Delete the note of {NAME}", "inputSchema": TEXT},
    {"name": f"touch_{NAME}", "description": f"Change the note of {NAME}", "inputSchema": TEXT},
    {"name": f"log_{NAME}", "description": f"Log something at {NAME}", "inputSchema": TEXT},
    {"name": f"ask_{NAME}", "description": f"Ask the user of {NAME}", "inputSchema": TEXT},
]
CAPABILITIES = {
    "tools": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}

writing = threading.Lock()
numbers = itertools.count(1)
calls = itertools.count(1)
"""So that a result that was sent twice can be told from two results."""

answers: dict[str, queue.Queue[dict[str, Any]]] = {}


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    text = arguments.get("text", "")
    if name == f"read_{NAME}_book":
        rows = [{"row": number, "text": text} for number in range(arguments.get("rows", 1))]
        return said(json.dumps(rows))
    if name == f"touch_{NAME}":
        send({"method": "notifications/resources/updated", "params": {"uri": URI}})
    if name == f"log_{NAME}":
        send({"method": "notifications/message", "params": {"level": "error", "data": text}})
    if name == f"ask_{NAME}":
        number = f"question {next(numbers)}"
        answers[number] = queue.Queue()
        form = {"message": text, "requestedSchema": {"type": "object", "properties": {}}}
        send({"id": number, "method": "elicitation/create", "params": form})
        return said(f"{text}: {json.dumps(answers[number].get())}")
    return said(f"{name} {text} #{os.getpid()}-{next(calls)}")


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": NAME, "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    found: dict[str, dict[str, Any]] = {
        "ping": {},
        "tools/list": {"tools": TOOLS},
        "prompts/list": {"prompts": [{"name": f"prompt_{NAME}", "arguments": [{"name": "word"}]}]},
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": f"prompt of {NAME}"}}]},
        "resources/list": {"resources": [{"uri": URI, "name": "note"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": f"{NAME}://page/{{n}}", "name": "page"}]},
        "resources/read": {"contents": [{"uri": params.get("uri"), "text": f"note of {NAME}"}]},
        "resources/subscribe": {},
        "resources/unsubscribe": {},
        "logging/setLevel": {},
        "completion/complete": {"completion": {"values": [f"word of {NAME}"]}},
    }
    is_unknown = method.startswith("resources/") and not str(params.get("uri", URI)).startswith(f"{NAME}://")
    return None if is_unknown else found.get(method)


def answer(message: dict[str, Any]) -> None:
    result = result_of(message["method"], message.get("params") or {})
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        send({"id": message["id"], "result": result})


for line in sys.stdin:
    received = json.loads(line)
    if "method" not in received:
        answers[received["id"]].put({key: received[key] for key in ("result", "error") if key in received})
    elif "id" in received:
        threading.Thread(target=answer, args=(received,), daemon=True).start()
