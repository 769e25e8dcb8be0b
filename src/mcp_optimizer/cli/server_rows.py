"""What `servers` and `doctor` say about a server: facts for programs, of which they make rows for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.terminal_text import counted

if TYPE_CHECKING:
    from mcp_optimizer.app import Optimizer
    from mcp_optimizer.upstream.state import UpstreamState


def facts_of(optimizer: Optimizer, state: UpstreamState) -> dict[str, Any]:
    """What is known about a server. Programs read the keys: none of them changes its meaning."""
    tools = [tool for tool in optimizer.snapshot.running if tool.server == state.name]
    facts: dict[str, Any] = {
        "name": state.name,
        "status": state.status.value,
        "transport": state.spec.transport.value,
        "tools": len(tools),
        "tokens": sum(tool.tokens for tool in tools),
    }
    if state.reason:
        facts["reason"] = state.reason
    if state.failure is not None:
        facts["failure"] = state.failure.value
    if state.protocol_version:
        facts["protocol"] = state.protocol_version
    if state.server_version:
        facts["version"] = state.server_version
    if state.stray:
        facts["prints"] = state.stray
    if state.started_in:
        facts["started_in_s"] = round(state.started_in, 2)
    unapproved = optimizer.snapshot.unapproved
    for kind, found in (("held", unapproved.held), ("announced", unapproved.announced)):
        if own := [tool for (server, _), tool in found.items() if server == state.name]:
            facts[kind] = [{"tool": tool.name, "change": tool.change.value} for tool in own]
    if state.listing.turned_off:
        facts["turned_off"] = list(state.listing.turned_off)
    if state.listing.idle:
        facts["no_such_tools"] = list(state.listing.idle)
    if state.listing.left_out:
        facts["left_out"] = [{"tool": tool.name, "reason": tool.reason} for tool in state.listing.left_out]
    return facts


def changes_of(row: dict[str, Any]) -> list[str]:
    """What a person should know about tools that are not as they were approved."""
    held, announced = row.get("held", []), row.get("announced", [])
    return [
        *([f"{counted(len(held), 'tool')} held until approved"] if held else []),
        *([f"{counted(len(announced), 'tool')} changed since approved"] if announced else []),
    ]
