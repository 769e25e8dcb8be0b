"""Measures the size of every tool, compressed and as a signature; uses all processors for thousands of tools.

Called by reports. Processes receive definitions, and return numbers and the compressed definitions, so those need not
be made again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.catalog.tool_forms import Detail, Groups, ToolForms
from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.compression.compress import Dialect, SchemaNotes
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.domain.naming import ServerNames, is_listable, public_names
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.tools import Definition, DefinitionForm
from mcp_optimizer.search.lexical import FIELDS, TermCounts
from mcp_optimizer.token_counter import TokenCounter

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
