"""Builds everything that is made anew when tools come, change or go: the index, and all names. Runs in a thread.

The event loop goes on meanwhile; what changes in that time is made up for when the result is swapped in. Called by the
live catalog; takes values and returns values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_optimizer.catalog.running import Count, NamedTools, RunningTools, name_tools
from mcp_optimizer.catalog.vectors import vectors_in
from mcp_optimizer.ingestion.record import ToolRecord
from mcp_optimizer.naming import ServerNames
from mcp_optimizer.search.engine import Encoder, Entry, SearchIndex
from mcp_optimizer.search.lexical import Floats, Vocabulary, in_use, translated

_SPARE_TERMS = 20_000
"""Terms that no tool has any more and that are carried along at the least: sorting them out costs more than they do."""

Records = Mapping[str, Sequence[ToolRecord]]
"""By server."""


@dataclass(frozen=True)
class Plan:
    """What is to be built."""

    records: Records
    servers: ServerNames
    running: frozenset[str]
    vocabulary: Vocabulary
    encoder: Encoder | None
    vectors: Mapping[str, Floats]
    named: NamedTools
    """As they are now."""


@dataclass(frozen=True)
class Built:
    """An index over everything that was planned, and what goes with it."""

    index: SearchIndex
    running: RunningTools
    vectors: dict[str, Floats]
    vocabulary: Vocabulary
    records: Records
    """The plan's, or the same in the numbers of a new vocabulary."""


def build(plan: Plan, count: Count) -> Built:
    """`count`: the tokens of a definition's JSON."""
    vocabulary, by_server = _in_one_vocabulary(plan.records, plan.vocabulary)
    records = tuple(record for server in sorted(by_server) for record in by_server[server])
    entries = [
        Entry(record.server, record.name, record.counts, plan.vectors.get(record.vector_key), record.successors)
        for record in records
    ]
    index = SearchIndex(entries, vocabulary, plan.encoder)
    named = name_tools(records, plan.servers, count, plan.named)
    running = RunningTools(named, plan.running)
    return Built(index, running, vectors_in(index.vectors, records), vocabulary, by_server)


def _in_one_vocabulary(records: Records, vocabulary: Vocabulary) -> tuple[Vocabulary, Records]:
    """All records in the numbers of one vocabulary: a new one, when most of its terms are nobody's any more."""
    if vocabulary.is_due(_SPARE_TERMS):
        used = in_use((record.counts for found in records.values() for record in found), vocabulary)
        vocabulary.looked_through(used)
        if len(vocabulary) > 2 * used + _SPARE_TERMS:
            vocabulary = Vocabulary()
    return vocabulary, {server: _translated(found, vocabulary) for server, found in records.items()}


def _translated(records: Sequence[ToolRecord], vocabulary: Vocabulary) -> Sequence[ToolRecord]:
    if all(record.counts.vocabulary is vocabulary for record in records):
        return records
    return [replace(record, counts=translated(record.counts, vocabulary)) for record in records]
