"""What a caller names of a server that it may not use is not found, and the audit knows whose it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mcp import Client, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.serving.messages import A_RULE, record_denial
from tests.unit.access.audit.test_recording import ALICE, CALLER, Collected
from tests.unit.serving.relay.two_servers import TwoServers

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

ARGUMENT = {"name": "id", "value": "1"}


def told(entry: AuditEntry) -> tuple[str, ...]:
    return (entry.method, entry.server, entry.tool, entry.decision, entry.outcome)


async def ask(client: Client, method: str, named: str) -> None:
    if method == "prompts/get":
        await client.get_prompt(named)
    elif method == "resources/read":
        await client.read_resource(named)
    elif method == "resources/subscribe":
        await client.session.subscribe_resource(named)
    elif "://" in named:
        await client.complete(ResourceTemplateReference(type="ref/resource", uri=named), ARGUMENT)
    else:
        await client.complete(PromptReference(type="ref/prompt", name=named), ARGUMENT)


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("prompts/get", "payroll__sum"),
        ("prompts/get", "payroll__nothing"),
        ("prompts/get", "only payroll"),
        ("resources/read", "payroll+note:///1?token=x"),
        ("resources/subscribe", "payroll+note:///1"),
        ("completion/complete", "payroll__sum"),
        ("completion/complete", "only payroll"),
        ("completion/complete", "payroll+note:///{id}"),
    ],
)
async def test_what_is_of_a_hidden_server_is_not_found_and_recorded_as_denied(method: str, named: str) -> None:
    trail = Collected()
    two = TwoServers(trail)
    async with two.client("notes", "legacy") as client:
        with pytest.raises(MCPError, match=r"not found|Unknown prompt|Nothing to complete"):
            await ask(client, method, named)
    assert two.pool.calls == []
    assert [told(entry) for entry in trail.entries] == [(method, "payroll", named.partition("?")[0], "deny", "denied")]


async def test_a_listener_that_names_what_is_hidden_is_recorded_and_never_told() -> None:
    trail = Collected()
    uris = ["payroll+note:///1", "note:///1"]
    async with (
        TwoServers(trail).client("notes", "auto") as client,
        client.listen(resource_subscriptions=uris) as listening,
    ):
        assert listening.honored.resource_subscriptions == ["note:///1"]
    method = "resources/subscribe"
    assert [told(entry) for entry in trail.entries] == [
        (method, "payroll", "payroll+note:///1", "deny", "denied"),
        (method, "notes", "note:///1", "allow", "ok"),
    ]


async def test_what_nobody_has_is_not_recorded() -> None:
    trail = Collected()
    async with TwoServers(trail).client("nobody", "legacy") as client:
        for method, named in (
            ("prompts/get", "unheard of"),
            ("resources/read", "else://where"),
            ("completion/complete", "else://{x}"),
        ):
            with pytest.raises(MCPError):
                await ask(client, method, named)
    assert trail.entries == []


def test_a_denial_says_whether_the_callers_servers_or_a_rule_made_it() -> None:
    trail = Collected()
    for servers in (frozenset({"notes"}), None):
        caller = CALLER._replace(principal=replace(ALICE, servers=servers))
        record_denial(trail, caller, "prompts/get", {"name": "payroll__sum"}, "payroll")
    assert [entry.rule for entry in trail.entries] == ["the caller's servers", A_RULE]
