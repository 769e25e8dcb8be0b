"""Builds what changes with the tools: the index and all names. Runs in a thread.

The event loop continues meanwhile; changes in that time are applied when the result is swapped in. Called by the live
catalog; takes values and returns values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_optimizer.catalog.admitting import Unapproved
from mcp_optimizer.catalog.record import ToolRecord
from mcp_optimizer.catalog.running import Count, NamedTools, RunningTools, name_tools
from mcp_optimizer.catalog.vectors import vectors_in
from mcp_optimizer.domain.naming import ServerNames
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.lexical import Vector, Vocabulary, in_use, translated
from mcp_optimizer.search.parts import Entry

_SPARE_TERMS = 20_000
"""Unused terms that are always tolerated, because removing them costs more than keeping them."""

Records = Mapping[str, Sequence[ToolRecord]]
"""By server."""


@dataclass(frozen=True)
class Plan:
    """What to build."""

    records: Records
    servers: tuple[str, ...]
    """All that are configured."""
    own_names: tuple[str, ...]
    """Of the gateway's tools, which no server's tool gets."""
    running: frozenset[str]
    vocabulary: Vocabulary
    encoder: Encoder | None
    vectors: Mapping[str, Vector]
    named: NamedTools
    """The current names."""
    unapproved: Unapproved
    """Of the same moment as the records, so that no tool is both found and held, or neither."""


@dataclass(frozen=True)
class Built:
    """An index over everything in the plan, and the values that belong to it."""

    index: SearchIndex
    running: RunningTools
    vectors: dict[str, Vector]
    vocabulary: Vocabulary
    records: Records
    """The plan's records, renumbered if the vocabulary is new."""


def build(plan: Plan, count: Count) -> Built:
    """`count` returns the tokens of a definition's JSON."""
    vocabulary, by_server = _in_one_vocabulary(plan.records, plan.vocabulary)
    records = tuple(record for server in sorted(by_server) for record in by_server[server])
    entries = [
        Entry(record.server, record.name, record.counts, plan.vectors.get(record.vector_key), record.successors)
        for record in records
    ]
    index = SearchIndex(entries, vocabulary, plan.encoder)
    named = name_tools(records, ServerNames(plan.servers, plan.own_names), count, plan.named)
    running = RunningTools(named, plan.running)
    return Built(index, running, vectors_in(index.vectors, records), vocabulary, by_server)


def taken_over(current: Records, planned: Records, built: Records) -> tuple[Records, list[ToolRecord]]:
    """The records as they were built, where they are still current; and those that came meanwhile."""
    found, since = dict(current), list[ToolRecord]()
    for server, records in current.items():
        if records is planned.get(server):
            found[server] = built[server]
        else:
            since += records
    return found, since


def _in_one_vocabulary(records: Records, vocabulary: Vocabulary) -> tuple[Vocabulary, Records]:
    """All records with the numbers of one vocabulary; a new one, if most terms are no longer used."""
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
