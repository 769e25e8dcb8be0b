"""What a model must read, and may do, in each client: nothing lost, nothing denied that exists, nothing allowed anew.

Checks as in `checks`, over the same evidence.
"""

from __future__ import annotations

import json
import re

import yaml

from tests.clients.bench import SHOP
from tests.clients.checks import Check, is_known
from tests.clients.lab import ORDERS
from tests.clients.programs import LIBRARIES
from tests.clients.story import DAY, FORBIDDEN, Evidence, result_id

_HIDES_EVERY_TOOL = ("vibe",)
"""Clients that show their model no tool of any server before it has searched for it, and have no switch for that."""
_KEEPS_TOOLS = ("copilot-cli",)
"""Clients that begin with the tools of their last session, of any server, and refuse a first call if they changed. Here
a server was added in between.
"""
_NOTHING_TELLS_APART = ("claude-code",)
"""Clients whose sub-agents and cleared conversations look to us like the conversation before."""


def a_cut_result_says_so_with_its_id(evidence: Evidence) -> None:
    read = evidence.read("orders")
    assert result_id(read), f"no read_result(...) in {len(read)} characters that end with {read[-200:]!r}"
    assert f"of {ORDERS} rows" in read


def the_rest_of_a_cut_result_can_be_read(evidence: Evidence) -> None:
    read = evidence.read("read on")
    assert re.search(rf"order_id\W+{ORDERS - 1}\b", read), read[:300]


def a_search_reply_is_read_once_with_the_server(evidence: Evidence) -> None:
    read = evidence.day.held.read(DAY.index("find"))
    assert read is not None, evidence.day.held.missing
    assert read.raw.count("List all orders of the shop.") == 1, read.raw[:400]
    assert "list_orders() [toyshop]: List" in read.raw, read.raw[:400]


def a_tool_without_arguments_can_be_called(evidence: Evidence) -> None:
    assert "Unexpected arguments" not in evidence.read_in_the_morning("call"), evidence.read_in_the_morning("call")


def a_server_that_was_killed_answers_the_next_call(evidence: Evidence) -> None:
    assert "It is open." in evidence.read("after a kill"), evidence.read("after a kill")[:400]


def the_first_search_is_right_while_servers_start(evidence: Evidence) -> None:
    found = evidence.read_in_the_morning("find")
    if evidence.name in _KEEPS_TOOLS and "catalog changed" in found:
        return
    assert "list_orders() [toyshop]" in found, found[:400]


def the_first_call_is_right_while_servers_start(evidence: Evidence) -> None:
    called = evidence.read_in_the_morning("call")
    assert "It is open." in called, called[:400]


def our_tools_are_in_the_first_request(evidence: Evidence) -> None:
    if evidence.name in _HIDES_EVERY_TOOL:
        return
    offered = evidence.morning.held.first.offered
    assert any(name.endswith("find_tool") for name in offered), f"{evidence.morning.held.searches} searches; {offered}"


def the_first_request_names_the_servers_behind_us(evidence: Evidence) -> None:
    if evidence.name in _HIDES_EVERY_TOOL:
        return
    body = dict(evidence.day.held.first.body)
    assert SHOP in json.dumps(body), "the model is not told of the toyshop"


def tools_that_only_read_can_be_called_where_only_these_may(evidence: Evidence) -> None:
    if evidence.careful is None:
        return
    read = evidence.careful.held.read(0)
    assert read is not None, evidence.careful.held.missing
    assert "It is open." in read.text, read.text[:300]


def what_the_user_forbade_stays_forbidden(evidence: Evidence) -> None:
    if is_known(evidence) and not evidence.bench.client.is_plain:
        assert not evidence.bench.did(f"{SHOP} did {FORBIDDEN}"), evidence.read("forbidden")[:300]


def variables_of_the_user_reach_the_server(evidence: Evidence) -> None:
    if not evidence.bench.client.is_plain:
        assert "The token is right." in evidence.read("token"), evidence.read("token")[-300:]


def a_tool_is_shown_again_where_nothing_tells_conversations_apart(evidence: Evidence) -> None:
    if evidence.name in _NOTHING_TELLS_APART:
        assert "list_orders() [toyshop]: List" in evidence.read("find again"), evidence.read("find again")[:300]


def a_file_from_which_all_moved_can_still_be_read(evidence: Evidence) -> None:
    if is_known(evidence) and evidence.bench.file.suffix == ".yaml":
        assert yaml.safe_load(evidence.bytes_before_connect)["mcpServers"] is not None


def a_move_can_be_taken_back(evidence: Evidence) -> None:
    if not is_known(evidence):
        return
    assert evidence.restored.code == 0, evidence.restored.printed[-300:]
    if evidence.bytes_after_use == evidence.bytes_connected:
        assert evidence.bytes_restored == evidence.bytes_at_first
    assert SHOP.encode() in evidence.bytes_restored


def import_and_connect_know_the_client(evidence: Evidence) -> None:
    assert is_known(evidence) or evidence.bench.client in LIBRARIES, evidence.connected.printed[-300:]


PROMISES: tuple[Check, ...] = (
    a_cut_result_says_so_with_its_id,
    the_rest_of_a_cut_result_can_be_read,
    a_search_reply_is_read_once_with_the_server,
    a_tool_without_arguments_can_be_called,
    a_server_that_was_killed_answers_the_next_call,
    the_first_search_is_right_while_servers_start,
    the_first_call_is_right_while_servers_start,
    our_tools_are_in_the_first_request,
    the_first_request_names_the_servers_behind_us,
    tools_that_only_read_can_be_called_where_only_these_may,
    what_the_user_forbade_stays_forbidden,
    variables_of_the_user_reach_the_server,
    a_tool_is_shown_again_where_nothing_tells_conversations_apart,
    a_file_from_which_all_moved_can_still_be_read,
    a_move_can_be_taken_back,
    import_and_connect_know_the_client,
)
