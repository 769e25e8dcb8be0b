"""An awkward server on stdio, for real clients: large and structured results, errors, changes, a slow start, no start.

    python lab.py LOG [--hangs] [--name NAME]

Started by clients and by the gateway. LOG gets a line for each start (with the process id) and each change; if a file
beside it is called LOG.slow, starting takes as many seconds as it says. Speaks JSON-RPC by itself, so that no library
makes its answers better than those of other people's servers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

ORDERS = 640
WALLET = "wallet"
"""The name by which it is another server, which has one tool and needs a variable."""
TOKEN_VARIABLE = "WALLET_TOKEN"
TOKEN = "sesame"
_READS = {"readOnlyHint": True}
_VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")


def tool(name: str, description: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}, "required": list(properties or {})}
    return {"name": name, "description": description, "inputSchema": schema, **more}


_ORDERS_SCHEMA = {"type": "object", "properties": {"orders": {"type": "array", "items": {"type": "object"}}}}
TOOLS = (
    tool("list_orders", "List all orders of the shop.", annotations=_READS, outputSchema=_ORDERS_SCHEMA),
    tool("shop_status", "Whether the shop is open now.", annotations=_READS),
    tool("close_month", "Close the month in the books.", {"month": {"type": "string"}}),
    tool(
        "write_note",
        "Write a note into the shop's notebook.",
        {"text": {"type": "string"}},
        annotations={"readOnlyHint": False, "destructiveHint": False},
    ),
    tool("refund_order", "Give the money of an order back.", {"order_id": {"type": "integer"}}),
    tool("delete_orders", "Delete all orders irrevocably.", annotations={"destructiveHint": True}),
)

_CHECK_TOKEN = tool("check_token", "Check the token of the wallet.", annotations=_READS)


def order(number: int) -> dict[str, Any]:
    return {"order_id": number, "customer": f"Customer {number % 97}", "total": number * 1.5, "note": "as agreed"}


class Lab:
    """The server, which answers one message after another."""

    def __init__(self, log: Path, out: TextIO, name: str) -> None:
        self._log = log
        self._out = out
        self._name = name

    def record(self, line: str) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{self._name} {line}\n")

    def answer(self, message: dict[str, Any]) -> None:
        if "id" not in message or "method" not in message:
            return
        methods = {"initialize": self._initialize, "tools/list": self._list, "tools/call": self._call}
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in methods:
            reply["result"] = methods[message["method"]](message.get("params") or {})
        elif message["method"] == "ping":
            reply["result"] = {}
        else:
            reply["error"] = {"code": -32601, "message": f"no {message['method']} here"}
        self._out.write(json.dumps(reply) + "\n")
        self._out.flush()

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        version = wanted if wanted in _VERSIONS else _VERSIONS[-1]
        about = {"name": self._name, "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}

    def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": TOOLS if self._name != WALLET else [_CHECK_TOKEN]}

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        arguments = params.get("arguments") or {}
        if params["name"] == "list_orders":
            orders = {"orders": [order(number) for number in range(ORDERS)]}
            return {"content": [{"type": "text", "text": json.dumps(orders)}], "structuredContent": orders}
        if params["name"] == "shop_status":
            # As strict as many servers: what is not in the schema is refused.
            return (
                _text(f"Unexpected arguments: {sorted(arguments)}", failed=True) if arguments else _text("It is open.")
            )
        if params["name"] == "check_token":
            token = os.environ.get(TOKEN_VARIABLE, "missing")
            return _text("The token is right." if token == TOKEN else f"The token is {token!r}, which is wrong.")
        if params["name"] == "close_month":
            return _text("The books of that month were closed by an auditor.", failed=True)
        self.record(f"did {params['name']} {json.dumps(arguments)}")
        return _text(f"{params['name']} done")


def _text(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--hangs", action="store_true")
    parser.add_argument("--name", default="toyshop")
    options = parser.parse_args()
    lab = Lab(options.log, sys.stdout, options.name)
    lab.record(f"started {os.getpid()}")
    slow = options.log.with_suffix(options.log.suffix + ".slow")
    if slow.exists():
        threading.Event().wait(float(slow.read_text(encoding="utf-8")))
    for line in sys.stdin:
        if not options.hangs:
            lab.answer(json.loads(line))


if __name__ == "__main__":
    main()
