"""What must hold for every client, whatever it makes of our replies. Each check is a sentence over the evidence.

Pure but for a look at processes: an AssertionError says what was seen instead. Called by `__main__`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from mcp_optimizer.config.known_clients.table import CLIENTS as KNOWN
from tests.clients.bench import SHOP
from tests.clients.lab import WALLET
from tests.clients.story import REASON, Evidence
from tests.waiting import found_in_time

Check = Callable[[Evidence], None]


def sentence(check: Check) -> str:
    return check.__name__.replace("_", " ")


def is_known(evidence: Evidence) -> bool:
    """Whether mcp-optimizer knows this client by itself."""
    return evidence.name in KNOWN


def import_takes_the_servers_over(evidence: Evidence) -> None:
    if is_known(evidence):
        assert evidence.imported.code == 0, evidence.imported.printed[-300:]
        servers = json.loads(evidence.bench.server_file.read_text(encoding="utf-8"))["mcpServers"]
        assert {SHOP, WALLET} <= servers.keys(), servers.keys()


def connect_changes_the_file(evidence: Evidence) -> None:
    if is_known(evidence):
        assert evidence.connected.code == 0, evidence.connected.printed[-300:]
        assert b"mcp-optimizer" in evidence.bytes_connected
        assert evidence.bytes_connected != evidence.bytes_before_connect


def what_moved_is_offered_once(evidence: Evidence) -> None:
    offered = {name for asked in evidence.day.held.asked for name in asked.offered}
    twice = [name for name in offered if name.endswith(("list_orders", "write_note"))]
    assert not twice, f"offered beside ours: {twice}"


def the_day_is_lived_to_its_end(evidence: Evidence) -> None:
    assert not evidence.day.held.missing, f"missing: {evidence.day.held.missing}; {evidence.day.ended.printed[-300:]}"
    assert evidence.read("after a kill")[:1] != "(", evidence.day.ended.printed[-300:]


def find_tool_shows_the_right_tool(evidence: Evidence) -> None:
    found = evidence.read("find")
    assert "List all orders of the shop." in found, found[:500]


def an_error_is_told_in_the_servers_words(evidence: Evidence) -> None:
    assert "The books of that month were closed by an auditor." in evidence.read("error"), evidence.read("error")[:500]


def a_change_is_made_once_and_told(evidence: Evidence) -> None:
    assert "write_note done" in evidence.read("note"), evidence.read("note")[:500]
    assert evidence.bench.did(f"{SHOP} did write_note") == [f'{SHOP} did write_note {{"text": "hello"}}']


def a_rule_refuses_and_gives_its_reason(evidence: Evidence) -> None:
    assert REASON in evidence.read("ruled out"), evidence.read("ruled out")[:500]
    assert not evidence.bench.did(f"{SHOP} did refund_order")


def disconnect_restores_the_bytes(evidence: Evidence) -> None:
    if not is_known(evidence):
        return
    assert evidence.disconnected.code == 0, evidence.disconnected.printed[-300:]
    if evidence.bytes_after_use == evidence.bytes_connected:
        assert evidence.bytes_at_last == evidence.bytes_before_connect
    else:
        # The client wrote into its file itself, so only our entry goes.
        assert b"mcp-optimizer" not in evidence.bytes_at_last


def nothing_is_left_running(evidence: Evidence) -> None:
    found_in_time(lambda: not evidence.bench.left_over() or None, "awkward servers have ended")


CHECKS: tuple[Check, ...] = (
    import_takes_the_servers_over,
    connect_changes_the_file,
    what_moved_is_offered_once,
    the_day_is_lived_to_its_end,
    find_tool_shows_the_right_tool,
    an_error_is_told_in_the_servers_words,
    a_change_is_made_once_and_told,
    a_rule_refuses_and_gives_its_reason,
    disconnect_restores_the_bytes,
    nothing_is_left_running,
)
