"""Measures the size of every tool, compressed and as a signature, and what each phase saves on a catalog; uses all
processors for thousands of tools.

Called by reports. Processes receive definitions, and return numbers and the compressed definitions, so those need not
be made again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import Detail, Groups, ToolForms
from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.compression.compress import Dialect, SchemaNotes
from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.domain.naming import ServerNames, is_listable, public_names
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.tools import Definition, DefinitionForm, McpTool
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.metrics.reduction import percent_saved
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName, Tier
from mcp_optimizer.search.lexical import FIELDS, TermCounts
from mcp_optimizer.token_counter import TokenCounter

# The savings of each phase on a catalog: compressed schemas, registered profiles, short descriptions. The phases are
# those of the schema-compression document. Targets belong to its example, so only a report on that example states
# them. Measurements of single tools are only for `report --json`, because counting every part again takes a while.


class MeasurementPhase(StrEnum):
    """When something was measured."""

    BASELINE = "Baseline"
    AFTER_PHASE_1 = "AfterPhase1"
    AFTER_PHASE_2 = "AfterPhase2"
    AFTER_PHASE_3 = "AfterPhase3"


class ToolPhaseMetrics(BaseModel):
    """What a tool costs after a phase: `TokenMetrics` in the schema-compression document."""

    tool_name: str
    baseline_tokens: int = Field(ge=0)
    optimized_tokens: int = Field(ge=0)
    reduction_percent: float = Field(ge=0.0, le=100.0)
    measurement_phase: MeasurementPhase
    tier: Tier
    timestamp: datetime

    @classmethod
    def of(cls, name: str, baseline: int, optimized: int, phase: MeasurementPhase, tier: Tier, now: datetime) -> Self:
        return cls(
            tool_name=name,
            baseline_tokens=baseline,
            optimized_tokens=optimized,
            reduction_percent=percent_saved(baseline, optimized),
            measurement_phase=phase,
            tier=tier,
            timestamp=now,
        )

    @model_validator(mode="after")
    def _never_larger(self) -> Self:
        if self.optimized_tokens > self.baseline_tokens:
            raise ValueError("optimized_tokens must not exceed baseline_tokens")
        return self


Phase = Literal["baseline", "phase1", "phase2", "phase3"]


class TokenMeasurement(BaseModel):
    """What the parts of a tool's definition cost in a phase. In JSON it is spelled as in the document (`toolName`)."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)

    tool_name: str
    schema_tokens: int = Field(ge=0)
    description_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)
    phase: Phase


def measure_tool_tokens(tool: McpTool, counter: TokenCounter, phase: Phase) -> TokenMeasurement:
    """Count a definition as it is in a phase. The total also has the name and whatever else the definition says."""
    return TokenMeasurement(
        tool_name=tool.name,
        schema_tokens=counter.count_or_zero(compact(tool.input_schema)),
        description_tokens=counter.count_or_zero(tool.description or ""),
        total_tokens=counter.count_or_zero(tool.model_dump_json()),
        phase=phase,
    )


class TierMetrics(BaseModel):
    """What the tools of one tier cost."""

    tier_name: Tier
    total_tokens: int
    tool_count: int
    average_per_tool: float


class PhaseMetrics(BaseModel):
    """What a phase took off; and where it has a target, whether that was met."""

    phase_name: str
    total_reduction: int
    target_reduction: int | None = None
    achieved: bool | None = None

    @classmethod
    def of(cls, name: str, reduction: int, target: int | None) -> Self:
        achieved = None if target is None else reduction >= target
        return cls(phase_name=name, total_reduction=reduction, target_reduction=target, achieved=achieved)


NO_TARGETS: Mapping[str, int] = MappingProxyType({})


def tier_metrics(rows: Sequence[ToolPhaseMetrics]) -> list[TierMetrics]:
    """Totals by tier, over rows of one phase."""
    found = []
    for tier in Tier:
        own = [row.optimized_tokens for row in rows if row.tier is tier]
        average = round(sum(own) / len(own), 1) if own else 0.0
        found.append(TierMetrics(tier_name=tier, total_tokens=sum(own), tool_count=len(own), average_per_tool=average))
    return found


def phase_metrics(
    schemas: int, registration: int, descriptions: int, targets: Mapping[str, int] = NO_TARGETS
) -> list[PhaseMetrics]:
    """The effect of each phase by itself: compressed schemas and short descriptions reduce all tools, registration
    reduces the tools at the start. The phases cannot be added up; the total states their joint effect.
    """
    reductions = {
        "schema compression": schemas,
        "profile registration": registration,
        "descriptions": descriptions,
    }
    return [PhaseMetrics.of(name, reduction, targets.get(name)) for name, reduction in reductions.items()]


def measurements(
    snapshot: Snapshot, forms: ToolForms, lists: ToolLists, selected: ProfileName, counter: TokenCounter
) -> tuple[TokenMeasurement, ...]:
    """Every tool before and after phase 1; after phases 2 and 3 those that the profile registers. Largest first."""
    registered = set(lists.profiles().by_name[selected].tools)

    def of(tool: CatalogTool) -> Iterator[TokenMeasurement]:
        whole = tool.definition
        yield measure_tool_tokens(whole, counter, "baseline")
        # Phase 1 covers only the schema; phase 3 covers the description.
        compressed = forms.form(tool, Detail.SCHEMA).definition.model_copy(update={"description": whole.description})
        full = measure_tool_tokens(compressed, counter, "phase1")
        yield full
        if tool.name in registered:
            brief = measure_tool_tokens(lists.definition(tool.name, Level.WORDS), counter, "phase3")
            yield full.model_copy(update={"phase": "phase2"})
            yield brief if brief.total_tokens <= full.total_tokens else full.model_copy(update={"phase": "phase3"})

    tools = sorted(snapshot.running, key=lambda tool: (-tool.tokens, tool.name))
    return tuple(row for tool in tools for row in of(tool))


MANY = 1_000
"""Tools from which it pays to start processes."""

_CHUNK = 400

Sizes = dict[str, tuple[int, int]]
"""By public name: tokens with the compressed schema, and tokens as a signature."""


@dataclass(frozen=True)
class FormRecipe:
    """The settings for making forms."""

    encoding: str
    notes: str
    dialect: str
    groups: Groups
    schema_notes: str = SchemaNotes.RULES

    def forms(self) -> ToolForms:
        notes = SchemaNotes(self.schema_notes)
        return ToolForms(TokenCounter(self.encoding), Notes(self.notes), Dialect(self.dialect), self.groups, notes)


Work = tuple[str, str, Definition]
"""A tool's public name, its server, its definition."""


def sizes(tools: Iterable[CatalogTool], forms: ToolForms) -> Sizes:
    """Measures in this process."""
    return {
        tool.name: (forms.form(tool, Detail.SCHEMA).tokens, forms.form(tool, Detail.SIGNATURE).tokens) for tool in tools
    }


@dataclass(frozen=True)
class MeasuredCatalog:
    """A catalog for reports that cannot be searched: its tools, their sizes, their compressed definitions."""

    tools: tuple[CatalogTool, ...]
    sizes: Sizes
    compressed: tuple[DefinitionForm, ...]


async def measured_in_processes(
    servers: Sequence[tuple[str, Sequence[Definition]]], making: FormRecipe
) -> MeasuredCatalog:
    """Measures servers' listings in separate processes."""
    # In the order of the catalog, so that tools get the same names.
    ordered = sorted(servers, key=lambda listed: listed[0])
    listed = [(server, tool) for server, own in ordered for tool in sorted(own, key=lambda tool: tool.name)]
    configured = ServerNames((server for server, _ in servers), OWN_NAMES)
    names = public_names([(server, definition.name) for server, definition in listed], configured, is_listable)
    work = [(name, *one) for name, one in zip(names, listed, strict=True)]
    # The large tools of one server are adjacent, so they are spread over the chunks.
    count = max(1, len(work) // _CHUNK)
    loop = asyncio.get_running_loop()
    # Not forked, because this process has threads.
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        chunks = (loop.run_in_executor(pool, _measured, making, work[at::count]) for at in range(count))
        made = await asyncio.gather(*chunks)
    tools = {tool.name: tool for chunk in made for tool in chunk.tools}
    return MeasuredCatalog(
        tuple(tools[name] for name in names),
        {name: size for chunk in made for name, size in chunk.sizes.items()},
        tuple(form for chunk in made for form in chunk.compressed),
    )


def _measured(making: FormRecipe, work: Sequence[Work]) -> MeasuredCatalog:
    forms, counter = making.forms(), TokenCounter(making.encoding)
    tools = tuple(_tool(one, counter) for one in work)
    return MeasuredCatalog(tools, sizes(tools, forms), tuple(forms.take_new()))


def _tool(work: Work, counter: TokenCounter) -> CatalogTool:
    name, server, definition = work
    # As at ingestion: a definition that the tokenizer cannot count counts as 0.
    tokens = counter.count_or_zero(definition.wire_json)
    record = ToolRecord(server, definition, tokens, _NO_TERMS, "")
    if name == definition.name:
        return CatalogTool(record, name, tokens)
    renamed = definition.sent().model_copy(update={"name": name})
    return CatalogTool(record, name, counter.count_or_zero(renamed.model_dump_json()))


_NO_TERMS = TermCounts(array("i"), array("H"), array("i", [0] * len(FIELDS)))
"""This catalog is never searched."""
