"""With split calls, clients have a tool for reading that calls nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client

from mcp_optimizer.access.policy.policy import Policy
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.own_tools import OWN_NAMES, OWN_TOOLS, SPLIT_TOOLS
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import ServerOptions, build_server
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import RecordingPool, gateway_over, mcp_tool, running

REPOS = running("repos", mcp_tool("get_issue", "Gets an issue."), mcp_tool("delete_issue", "Deletes an issue."))


async def asked(name: str, arguments: dict[str, Any], policy: Policy, *, split: bool = True) -> tuple[bool, str, int]:
    """Whether a call failed, its text, and how many calls reached a server."""
    pool = RecordingPool()
    gateway = await gateway_over(REPOS, pool=pool, permissions=Permissions(Views(policy)))
    server = build_server(gateway, "1.2.3", Relay(pool, dict), ServerOptions(split_calls=split))
    async with Client(server) as client:
        result = await client.call_tool(name, arguments)
    return bool(result.is_error), json.dumps([block.model_dump() for block in result.content]), len(pool.calls)


@pytest.mark.parametrize(("split", "expected"), [(False, OWN_TOOLS), (True, SPLIT_TOOLS)])
async def test_the_setting_decides_which_tools_of_ours_clients_see(split: bool, expected: Any) -> None:
    pool = RecordingPool()
    options = ServerOptions(split_calls=split)
    server = build_server(await gateway_over(REPOS, pool=pool), "1.2.3", Relay(pool, dict), options)
    async with Client(server) as client:
        listed = (await client.list_tools()).tools
    assert [one.name for one in listed] == [one["name"] for one in expected]
    hints = {one.name: one.annotations.read_only_hint for one in listed if one.annotations}
    assert hints.get("call_tool") is None
    assert hints.get("call_tool_read", True) is True


async def test_a_tool_that_reads_is_called() -> None:
    arguments = {"tool_name": "get_issue", "parameters": {}}
    assert (await asked("call_tool_read", arguments, Policy()))[::2] == (False, 1)


@pytest.mark.parametrize("name", ["delete_issue", "repos__delete_issue", "deleteIssue", "mcp__repos__delete_issue"])
async def test_a_tool_that_does_more_is_refused_in_every_spelling_and_never_reaches_its_server(name: str) -> None:
    failed, text, calls = await asked("call_tool_read", {"tool_name": name, "parameters": {}}, Policy())
    assert (failed, calls) == (True, 0)
    assert "counts as destructive. Use call_tool." in text


async def test_the_operator_can_say_that_a_tool_only_reads() -> None:
    policy = Policy(overrides={"repos__delete_issue": Risk.READ})
    assert not (await asked("call_tool_read", {"tool_name": "delete_issue", "parameters": {}}, policy))[0]


async def test_call_tool_calls_what_it_always_called() -> None:
    assert (await asked("call_tool", {"tool_name": "delete_issue", "parameters": {}}, Policy()))[::2] == (False, 1)


def test_no_server_can_have_a_tool_of_that_name() -> None:
    assert "call_tool_read" in OWN_NAMES


def test_the_split_costs_a_model_little() -> None:
    counter = TokenCounter("cl100k_base")
    plain, split = (counter.count_tokens(json.dumps(tools)) for tools in (OWN_TOOLS, SPLIT_TOOLS))
    assert split - plain < 200
