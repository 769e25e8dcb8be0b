"""A server whose process ends in the middle of the first call of each of its tools, and answers the next.

faltering.py FOLDER: notes each call of a tool in a file of its name there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

TOOLS = [
    {
        "name": "look",
        "description": "Look at the clock",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "change", "description": "Change the clock", "inputSchema": {"type": "object"}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "faltering", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        notes = Path(sys.argv[1]) / params["name"]
        with notes.open("a") as file:
            file.write("called\n")
        if len(notes.read_text().splitlines()) == 1:
            os._exit(3)
        return {"content": [{"type": "text", "text": "done"}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
