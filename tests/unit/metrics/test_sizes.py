"""Measuring tools in other processes gives the same sizes as the catalog."""

from __future__ import annotations

from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.metrics.tool_sizes import FormRecipe, measured_in_processes, sizes
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import live_catalog, mcp_tool, running

NOTED = {"type": "string", "description": "A note that says what this parameter is for, at length.", "title": "It"}


async def test_names_tokens_and_forms_are_those_of_the_catalog() -> None:
    tools = [mcp_tool(f"tool_{n}", f"Does number {n}", {"value": NOTED, "other": NOTED}) for n in range(5)]
    zoo, ark = (
        running("zoo", mcp_tool("same", "One", {"value": NOTED}), *tools),
        running("ark", mcp_tool("same", "Two")),
    )
    snapshot = (await live_catalog(zoo, ark)).snapshot
    measured = await measured_in_processes(
        [(state.name, state.listing.tools) for state in (zoo, ark)], FormRecipe("cl100k_base", "sentence", "plain", {})
    )
    shown = [(tool.name, tool.server, tool.tokens, tool.record.token_count) for tool in snapshot.running]
    assert [(tool.name, tool.server, tool.tokens, tool.record.token_count) for tool in measured.tools] == shown
    forms = ToolForms(TokenCounter())
    assert measured.sizes == sizes(snapshot.running, forms)
    forms.learn(measured.compressed)
    assert {form.definition_hash for form in measured.compressed} == {
        tool.record.definition_hash for tool in snapshot.running
    }
