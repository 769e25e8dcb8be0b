"""A server with tools, one prompt, one resource and one template, which begins to speak when a file is there.

notes.py FILE: without the file it is there and says nothing, as one that is still being fetched by npx, or one
that hangs. Its tool `crash` ends the process. The file's content, if any, is the name of its prompt.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

TOOLS = [
    {"name": "write_note", "description": "Write a note into the notebook", "inputSchema": {"type": "object"}},
    {"name": "crash", "description": "End this process", "inputSchema": {"type": "object"}},
]
CAPABILITIES = {
    "tools": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        version = params["protocolVersion"]
        return {
            "protocolVersion": version,
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "tools/call":
        if params["name"] == "crash":
            os._exit(3)
        return {"content": [{"type": "text", "text": "written"}]}
    text = {"type": "text", "text": "a note"}
    answers: dict[str, dict[str, Any]] = {
        "tools/list": {"tools": TOOLS},
        "prompts/list": {"prompts": [{"name": prompt_name()}]},
        "prompts/get": {"messages": [{"role": "user", "content": text}]},
        "resources/list": {"resources": [{"uri": "note://1", "name": "one"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://of/{day}", "name": "day"}]},
        "resources/read": {"contents": [{"uri": params.get("uri"), "text": "a note"}]},
        "resources/subscribe": {},
        "completion/complete": {"completion": {"values": ["monday"]}},
    }
    return answers.get(method)


def prompt_name() -> str:
    """Whoever wrote the file may also have removed it meanwhile, or it is a folder."""
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            return file.read() or "summarize"
    except OSError:
        return "summarize"


def main() -> None:
    while not os.path.exists(sys.argv[1]):
        threading.Event().wait(0.02)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


main()
