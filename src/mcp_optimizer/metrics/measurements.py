"""What each tool's schema and description cost in each phase, for `report --json`. Reads a snapshot, starts nothing.

Separate from the report, because only programs read so much, and counting every part again takes a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.forms import Detail, ToolForms
from mcp_optimizer.compression.descriptions import Level
from mcp_optimizer.metrics.phases import TokenMeasurement, measure_tool_tokens
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.token_counter import TokenCounter


def measurements(
    snapshot: Snapshot, forms: ToolForms, lists: ToolLists, selected: ProfileName, counter: TokenCounter
) -> tuple[TokenMeasurement, ...]:
    """Every tool before and after phase 1; after phases 2 and 3 those that the profile registers. Largest first."""
    registered = set(lists.profiles().by_name[selected].tools)

    def of(tool: CatalogTool) -> Iterator[TokenMeasurement]:
        whole = tool.definition
        yield measure_tool_tokens(whole, counter, "baseline")
        # Phase 1 is about the schema; what becomes of the description is phase 3.
        compressed = forms.form(tool, Detail.SCHEMA).definition.model_copy(update={"description": whole.description})
        full = measure_tool_tokens(compressed, counter, "phase1")
        yield full
        if tool.name in registered:
            brief = measure_tool_tokens(lists.definition(tool.name, Level.WORDS), counter, "phase3")
            yield full.model_copy(update={"phase": "phase2"})
            yield brief if brief.total_tokens <= full.total_tokens else full.model_copy(update={"phase": "phase3"})

    tools = sorted(snapshot.running, key=lambda tool: (-tool.tokens, tool.name))
    return tuple(row for tool in tools for row in of(tool))
