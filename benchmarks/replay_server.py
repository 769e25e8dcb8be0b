"""A stdio server in plain Python that lists the tools of a file and accepts any call: a stand-in for large servers.

Started by the benchmarks that need thousands of real tools: python replay_server.py FILE
"""

from __future__ import annotations

import json
import sys
from typing import Any

PAGE = 500


def result(message: dict[str, Any], tools: list[Any]) -> dict[str, Any] | None:
    params = message.get("params") or {}
    if message["method"] == "initialize":
        info = {"name": "replay", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if message["method"] == "tools/list":
        start = int(params.get("cursor") or 0)
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
        return {"tools": tools[start : start + PAGE], **more}
    if message["method"] == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params)}]}
    return None


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        tools = json.load(file)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = result(message, tools)
        body = {"result": answer} if answer is not None else {"error": {"code": -32601, "message": "not here"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
