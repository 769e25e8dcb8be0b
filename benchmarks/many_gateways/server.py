"""The server behind each of the three gateways; starts in milliseconds, because gateways are restarted all the time.

Started by a gateway, as a module, with FOLDER, which the servers of all gateways share: it writes there what happened,
and keeps the values that clients write and read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
_writing = threading.Lock()
Arguments = dict[str, Any]


def note(arguments: Arguments) -> str:
    """Something that must not happen twice."""
    with (FOLDER / "log").open("a", encoding="utf-8") as log:
        log.write(f"{arguments['id']}\n")
    time.sleep(arguments.get("seconds", 0))
    return f"{arguments['id']} {'x' * 300}"


def rows(arguments: Arguments) -> str:
    """A result that is cut."""
    mark = arguments["id"]
    return json.dumps([{"row": row, "name": f"{mark} row {row}", "note": "y" * 40} for row in range(300)])


def write_value(arguments: Arguments) -> str:
    place = FOLDER / f"value-{arguments['key']}"
    new = place.with_suffix(f".{threading.get_ident()}.{os.getpid()}")
    new.write_text(str(arguments["value"]), encoding="utf-8")
    new.replace(place)
    return f"written {arguments['value']}"


def read_value(arguments: Arguments) -> str:
    place = FOLDER / f"value-{arguments['key']}"
    return place.read_text(encoding="utf-8") if place.exists() else "none"


_READS = {"readOnlyHint": True, "openWorldHint": False}
_WRITES = {"readOnlyHint": False, "openWorldHint": False}
TOOLS: dict[str, tuple[Callable[[Arguments], str], str, dict[str, str], dict[str, bool]]] = {
    "take_note": (note, "Write a note into the log", {"id": "string", "seconds": "number"}, _WRITES),
    "list_rows": (rows, "List all rows of the table of persons", {"id": "string"}, {"readOnlyHint": True}),
    "write_value": (write_value, "Store a value under a key", {"key": "string", "value": "string"}, _WRITES),
    "read_value": (read_value, "Read the value of a key", {"key": "string"}, _READS),
}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "soak", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        listed = [
            {
                "name": name,
                "description": text,
                "inputSchema": {"type": "object", "properties": {key: {"type": kind} for key, kind in fields.items()}},
                "annotations": hints,
            }
            for name, (_, text, fields, hints) in TOOLS.items()
        ]
        return {"tools": listed}
    if method == "tools/call":
        text = TOOLS[params["name"]][0](params.get("arguments") or {})
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


def answer(message: dict[str, Any]) -> None:
    found = result(message["method"], message.get("params") or {})
    unknown = {"error": {"code": -32601, "message": "Method not found"}}
    line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **({"result": found} if found is not None else unknown)})
    with _writing:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
