"""What one user does with one client: servers of their own, moved behind mcp-optimizer, used, and taken back.

Gathers evidence, and judges none of it: `checks` and `promises` do. Called by `__main__`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.clients.bench import OURS, SHOP, Bench, Ended, Talk
from tests.clients.endpoint import Call
from tests.clients.lab import TOKEN_VARIABLE, WALLET
from tests.clients.programs import OUR_NAME

WISH = "all orders of the shop"
SLOW_SECONDS = 8
FORBIDDEN = "delete_orders"
"""What the user has forbidden in the client, by its own means."""
REASON = "Only the owner gives money back."
RULE = f"""[[rules]]
effect = "deny"
tool = "refund_order"
reason = "{REASON}"
"""
_RESULT_ID = re.compile(r"read_result\(\W*result_id\W*(\w+)")
LAST_ROWS = 635


def find(wish: str = WISH) -> Call:
    return Call(("find_tool",), {"tool_description": wish})


def reading(tool: str, **arguments: Any) -> Call:
    """A call of a tool that only reads, by whichever of our tools is for that."""
    return Call(("call_tool_read", "call_tool"), {"tool_name": tool, "parameters": arguments})


def changing(tool: str, **arguments: Any) -> Call:
    return Call(("call_tool",), {"tool_name": tool, "parameters": arguments})


def result_id(read: str) -> str:
    """The id of a cut result, as a model would take it from what it read."""
    found = _RESULT_ID.findall(read)
    return found[-1] if found else ""


def _read_on(read: str) -> Mapping[str, Any]:
    return {"result_id": result_id(read) or "unknown", "offset": LAST_ROWS}


@dataclass(frozen=True)
class Evidence:
    """What was seen of one client."""

    bench: Bench
    bytes_at_first: bytes
    imported: Ended
    bytes_before_connect: bytes
    connected: Ended
    bytes_connected: bytes
    day: Talk
    """Steps by the names in `DAY`."""
    careful: Talk | None
    """The same client, where it lets its model only read."""
    morning: Talk
    """The first steps while one server is slow and one hangs; names in `MORNING`."""
    bytes_after_use: bytes
    disconnected: Ended
    bytes_at_last: bytes
    restored: Ended
    bytes_restored: bytes

    @property
    def name(self) -> str:
        return self.bench.client.name

    def read(self, step: str) -> str:
        """What the model read after a step of the day."""
        return _read(self.day, DAY, step)

    def read_in_the_morning(self, step: str) -> str:
        return _read(self.morning, MORNING, step)


def _read(talk: Talk, steps: tuple[str, ...], step: str) -> str:
    result = talk.held.read(steps.index(step))
    return result.text if result else f"(nothing; tools that were missing: {talk.held.missing})"


DAY = ("find", "orders", "read on", "token", "error", "note", "ruled out", "forbidden", "find again", "after a kill")
MORNING = ("find", "call")


def live_through(bench: Bench) -> Evidence:
    """All of it, in the order in which a user would."""
    client = bench.client
    bench.set_up({SHOP: bench.lab(), WALLET: bench.lab(WALLET)}, f"{SHOP}/{FORBIDDEN}")
    at_first = bench.file.read_bytes()
    imported = bench.optimizer("import", client.name, "--move", "--yes")
    before_connect = bench.file.read_bytes()
    bench.settings_file.parent.mkdir(parents=True, exist_ok=True)
    kept = bench.settings_file.read_text(encoding="utf-8") if bench.settings_file.exists() else ""
    bench.settings_file.write_text(RULE + kept, encoding="utf-8")
    connected = bench.optimizer("connect", client.name, "--yes", "--file")
    if connected.code:
        _connect_by_hand(bench)
    bytes_connected = bench.file.read_bytes()
    day = bench.ask("day", _day(bench), (*client.trusting, *client.patient(OUR_NAME)), client.waits)
    careful = None if client.careful is None else bench.ask("careful", [reading("shop_status")], client.careful)
    morning = _morning(bench)
    after_use = bench.file.read_bytes()
    disconnected = bench.optimizer("disconnect", client.name, "--yes", "--file")
    at_last = bench.file.read_bytes()
    restored = bench.optimizer("disconnect", client.name, "--yes", "--restore")
    return Evidence(
        bench,
        at_first,
        imported,
        before_connect,
        connected,
        bytes_connected,
        day,
        careful,
        morning,
        after_use,
        disconnected,
        at_last,
        restored,
        bench.file.read_bytes(),
    )


def _day(bench: Bench) -> list[Call]:
    steps = {
        "find": find(),
        "orders": reading("list_orders"),
        "read on": Call(("read_result",), _read_on),
        "token": reading("check_token"),
        "error": changing("close_month", month="May"),
        "note": changing("write_note", text="hello"),
        "ruled out": changing("refund_order", order_id=7),
        "forbidden": changing(FORBIDDEN),
        "find again": find(),
        "after a kill": Call(**{**vars(reading("shop_status")), "before": bench.kill_lab}),
    }
    assert tuple(steps) == DAY
    return list(steps.values())


def _morning(bench: Bench) -> Talk:
    """The next day: the server that was quick takes its time, and there is a new one that never answers."""
    bench.slow_down(SLOW_SECONDS)
    document = json.loads(bench.server_file.read_text(encoding="utf-8"))
    program, *arguments = bench.lab("hangs", "--hangs")
    document["mcpServers"]["hangs"] = {"command": program, "args": arguments}
    bench.server_file.write_text(json.dumps(document), encoding="utf-8")
    return bench.ask("morning", [find(), reading("shop_status")], bench.client.trusting)


def _connect_by_hand(bench: Bench) -> None:
    """For a client that mcp-optimizer does not know, so that the rest is seen nevertheless."""
    if not bench.server_file.exists():
        commands = {name: bench.lab(name) for name in (SHOP, WALLET)}
        entries: dict[str, Any] = {
            name: {"command": command[0], "args": command[1:]} for name, command in commands.items()
        }
        entries[WALLET] |= {"env": {TOKEN_VARIABLE: f"${{{TOKEN_VARIABLE}}}"}}
        bench.server_file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    bench.set_up({"mcp-optimizer": [str(OURS), "serve", "--config", str(bench.server_file)]})
