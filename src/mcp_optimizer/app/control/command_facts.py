"""What commands print about servers, tools and stored scripts, as plain values that also travel over the socket.
Pure.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.app.control.command_requests import SaveScriptRequest
from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.domain.stored_script import StoredScript
from mcp_optimizer.gateway.found_tools import FoundTools, find_response, summary
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.results.notices import Notice
from mcp_optimizer.upstream.state import ServerSessions, UpstreamState

if TYPE_CHECKING:
    from mcp_optimizer.scripts.stored import ScriptStanding, StoredScripts


# Stored scripts as commands print them, and the request to save one. Loads no script code while scripts are off.

NOT_CHECKED: Final = "not checked"


def script_facts(script: StoredScript) -> dict[str, Any]:
    """Everything but its source."""
    saved = datetime.fromtimestamp(script.saved_at_ms / 1_000, UTC)
    return {
        "name": script.name,
        "description": script.description,
        "parameters": [str(one) for one in script.parameters],
        "risk": script.risk.value,
        "uses": [used.name for used in script.uses],
        "may_change": list(script.may_change),
        "saved_at": saved.isoformat(timespec="seconds"),
    }


def with_standing(script: StoredScript, found: ScriptStanding) -> dict[str, Any]:
    return {**script_facts(script), "state": found.state.value, "reason": found.reason}


async def script_rows(scripts: StoredScripts) -> list[dict[str, Any]]:
    """Every script, with its state."""
    return [with_standing(script, found) for script, found in await scripts.all()]


async def save_script(scripts: StoredScripts, request: SaveScriptRequest) -> dict[str, Any]:
    """Save a script; returns the name of the tool that now runs it."""
    from mcp_optimizer.scripts.saving import WantedScript

    wanted = WantedScript(request.name, request.source, request.description, request.parameters, request.may_change)
    saved = await scripts.save(wanted, replaces=request.replaces)
    return {**with_standing(saved, await scripts.standing(saved)), "server": scripts.server}


def found_facts(found: FoundTools) -> dict[str, Any]:
    """A search: the response as programs get it, and what else a table shows."""
    return {
        "response": find_response(found).model_dump(mode="json", exclude_none=True),
        "rows": [
            {
                "name": hit.tool.name,
                "server": hit.tool.server,
                "tokens": hit.tool.tokens,
                "score": hit.score,
                "summary": summary(hit.tool),
            }
            for hit in found.tools
        ],
        "only_nearest": bool(found.mark),
        "poor_parts": [part.request for part in found.parts if part.tools and not part.fits],
        "not_searched": [_missing(state) for state in found.missing],
    }


def tool_rows(tools: list[CatalogTool]) -> list[dict[str, Any]]:
    """Tools with their cost, the largest first."""
    ordered = sorted(tools, key=lambda tool: (-tool.tokens, tool.name))
    return [
        {
            "name": tool.name,
            "server": tool.server,
            "tokens": tool.tokens,
            "sent_tokens": tool.record.sent_tokens,
            "summary": summary(tool),
        }
        for tool in ordered
    ]


def result_facts(result: dict[str, Any]) -> dict[str, Any]:
    """A result, and which of its blocks the gateway wrote for the model."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    return {"result": result, "notices": [at for at, block in enumerate(blocks) if isinstance(block, Notice)]}


def meant_facts(tool: CatalogTool) -> dict[str, Any]:
    """The tool that a name means, as rules see it."""
    annotations = tool.record.definition.details.annotations
    return {"server": tool.server, "tool": tool.record.name, "annotations": annotations}


def tool_facts(tool: CatalogTool, forms: ToolForms, lists: ToolLists, profile: ProfileName) -> dict[str, Any]:
    """One tool before and after compression."""
    made = {detail: forms.form(tool, detail) for detail in Detail if detail is not Detail.PYTHON}
    return {
        "forms": {
            detail.value: {
                "tokens": form.tokens,
                "tool": form.definition.model_dump(mode="json"),
                "text": form.text(detail),
            }
            for detail, form in made.items()
        },
        "words": lists.described(tool.name, Level.WORDS),
        "steps": [{"technique": step.technique, "tokens": step.tokens} for step in forms.steps(tool)],
        "tool_schema": asdict(lists.tool_schema(tool.name, profile)),
    }


def missing_facts(snapshot: Snapshot) -> list[dict[str, str]]:
    """The servers that are not running."""
    return [_missing(state) for state in snapshot.missing()]


def _missing(state: UpstreamState) -> dict[str, str]:
    return {"name": state.name, "status": state.status.value, "reason": state.reason}


def session_facts(sessions: ServerSessions) -> dict[str, Any]:
    """What clients that share a gateway have of a server each for themselves."""
    return {"sessions": sessions.open, "each_client_has_its_own": sessions.are_apart}


def server_facts(snapshot: Snapshot, state: UpstreamState) -> dict[str, Any]:
    """One server: its state, the cost of its tools, and what is wrong with it.

    Programs read the keys: never change the meaning of one.
    """
    tools = [tool for tool in snapshot.running if tool.server == state.name]
    facts: dict[str, Any] = {
        "name": state.name,
        "status": state.status.value,
        "transport": state.spec.transport.value,
        "tools": len(tools),
        "tokens": sum(tool.tokens for tool in tools),
        "sent_tokens": sum(tool.record.sent_tokens for tool in tools),
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
    if state.spec.unread:
        facts["not_understood"] = list(state.spec.unread)
    if state.started_in:
        facts["started_in_s"] = round(state.started_in, 2)
    unapproved = snapshot.unapproved
    for kind, found in (("held", unapproved.held), ("announced", unapproved.announced)):
        if own := [tool for (server, _), tool in found.items() if server == state.name]:
            facts[kind] = [{"tool": tool.name, "change": tool.change.value} for tool in own]
    if (other := unapproved.instructions.get(state.name)) is not None:
        facts["instructions"] = {"change": other.change.value, "held": not state.instructions}
    if state.listing.turned_off:
        facts["turned_off"] = list(state.listing.turned_off)
    if state.listing.idle:
        facts["no_such_tools"] = list(state.listing.idle)
    if state.listing.left_out:
        facts["left_out"] = [{"tool": tool.name, "reason": tool.reason} for tool in state.listing.left_out]
    return facts
