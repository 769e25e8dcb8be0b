"""What is passed on to a server takes a turn of the caller's rate; lists do not."""

from __future__ import annotations

import pytest
from mcp import MCPError
from mcp_types import PromptReference

from mcp_optimizer.access.policy.policy import Policy, Rates
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Caller
from mcp_optimizer.errors import TooManyCalls
from mcp_optimizer.gateway.permissions import Permissions, Views
from tests.unit.access.audit.test_recording import Collected
from tests.unit.serving.relay.two_servers import TwoServers


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_prompts_resources_and_completions_count_and_are_refused_when_there_are_too_many(mode: str) -> None:
    trail, permissions = Collected(), Permissions(Views(Policy()), Rates(3, clock=lambda: 0.0))
    two = TwoServers(trail, permissions.take_turn)
    async with two.client("notes", mode) as client:
        for _ in range(5):
            await client.list_prompts()
        await client.read_resource("note:///1")
        await client.get_prompt("notes__sum")
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource("payroll+note:///1")
        await client.complete(PromptReference(type="ref/prompt", name="notes__sum"), {"name": "a", "value": ""})
        with pytest.raises(MCPError, match="calls") as raised:
            await client.read_resource("note:///2")
        assert raised.value.error.data["retryAfter"] > 0
    assert [method for _, method, _ in two.pool.calls] == ["resources/read", "prompts/get", "completion/complete"]
    assert [entry.server for entry in trail.entries] == ["notes", "notes", "payroll", "notes", ""]
    with pytest.raises(TooManyCalls):
        permissions.take_turn(Caller(principal=LOCAL_PRINCIPAL))
