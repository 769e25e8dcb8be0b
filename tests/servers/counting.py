"""A server that writes down every start and every call: counting.py FILE. The tool `note` writes its text, and answers
after so many `seconds`. The tool `count` says how often it was called: what the server holds in memory. The resource
`count://now` changes with it.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from typing import Any

TOOL = {
    "name": "note",
    "description": "Write a text into the file of notes",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "seconds": {"type": "number"}},
        "required": ["text"],
    },
}
COUNT = {"name": "count", "description": "Count one further", "inputSchema": {"type": "object"}}

NOW = "count://now"

counted = itertools.count(1)
watched: set[str] = set()


def written(text: str) -> None:
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "counting", "version": "1"}
        can = {"tools": {}, "resources": {"subscribe": True}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": can, "serverInfo": about}
    if method == "resources/list":
        return {"resources": [{"uri": NOW, "name": "now"}]}
    if method == "resources/subscribe":
        watched.add(params["uri"])
        return {}
    if method == "tools/list":
        return {"tools": [TOOL, COUNT]}
    if method == "tools/call" and params["name"] == "count":
        if NOW in watched:
            said = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": NOW}}
            print(json.dumps(said), flush=True)
        return {"content": [{"type": "text", "text": f"{next(counted)} by {os.getpid()}"}]}
    if method == "tools/call":
        arguments = params["arguments"]
        written(arguments["text"])
        threading.Event().wait(arguments.get("seconds", 0))
        return {"content": [{"type": "text", "text": f"{arguments['text']} by {os.getpid()} in {os.getcwd()}"}]}
    return None


def main() -> None:
    written("started")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        error = {"error": {"code": -32601, "message": "unknown"}}
        reply = {"jsonrpc": "2.0", "id": message["id"], **({"result": result} if result is not None else error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
