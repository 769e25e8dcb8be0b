"""Builds, in a thread, the index over all tools and every name that a tool may get. Called by the live catalog.

A tool has two possible names: its own, if no other running tool has it, it refers to no other server and models' APIs
accept it; and a longer one that contains its server. When a server comes or goes, `RunningTools` only switches between
the two on the event loop, for that server's tools and the few that share a name with one of them. Changes that happen
while an index is built are applied when it is swapped in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pydantic_core

from mcp_optimizer.catalog.admissions import Unapproved
from mcp_optimizer.catalog.embedding import vectors_in
from mcp_optimizer.catalog.tools import CatalogTool, NameTable, ToolRecord
from mcp_optimizer.domain.naming import NamesOfServer, ServerNames, is_listable
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vector, Vocabulary, in_use, translated

Count = Callable[[str], int]
"""Returns the tokens of a definition's JSON."""


@dataclass(frozen=True)
class NamedTools:
    """All tools of an index under their possible names: `alone` under their own, `longer` under the longer one."""

    table: NameTable = field(default_factory=NameTable)
    alone: tuple[CatalogTool | None, ...] = ()
    longer: tuple[CatalogTool | None, ...] = ()
    shared: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Own names that several servers have, and the positions of their tools."""
    sharing: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """By server: the positions and names of its tools whose names are shared."""


def name_tools(
    records: Sequence[ToolRecord], servers: ServerNames, count: Count, before: NamedTools | None = None
) -> NamedTools:
    """Make every possible name of these tools. Tools whose names did not change are taken from `before`."""
    plain = NameTable.of(records, servers)
    shared = {name: plain.named(name) for name in plain.further}
    stand_alone, longer = _choose_names(plain, shared)
    sharing: dict[str, list[tuple[int, str]]] = {}
    for name, found in shared.items():
        for position in found:
            sharing.setdefault(records[position].server, []).append((position, name))
    alone: list[CatalogTool | None] = []
    renamed: list[CatalogTool | None] = []
    known = before or NamedTools()
    for position, (record, old) in enumerate(_with_old(plain, known.table)):
        own, long = (None, None) if old is None else (known.alone[old], known.longer[old])
        called = longer.get(position)
        if called is None:
            long = None
        elif long is None or long.name != called:
            is_tool = record.skill is None
            tokens = count(wire_json(record.definition, called)) if is_tool else record.token_count
            long = CatalogTool(record, called, tokens)
        alone.append((own or CatalogTool(record, record.name, record.token_count)) if stand_alone[position] else None)
        renamed.append(long)
    table = NameTable.of(records, servers, ((name, position) for position, name in longer.items()))
    return NamedTools(table, tuple(alone), tuple(renamed), shared, sharing)


def _with_old(table: NameTable, before: NameTable) -> Iterator[tuple[ToolRecord, int | None]]:
    """Each record, with its position in an older table if it is unchanged there."""
    for server, found in table.ranges.items():
        for position in found:
            record = table.records[position]
            old = before.position(server, record.name)
            yield record, old if old is not None and before.records[old] is record else None


def _choose_names(table: NameTable, shared: Mapping[str, Sequence[int]]) -> tuple[list[bool], dict[int, str]]:
    """For each tool, whether its own name can be used; and a longer name for tools whose own cannot always be used."""
    stand_alone = [True] * len(table.records)
    longer: dict[int, str] = {}
    naming: dict[str, NamesOfServer] = {}
    for server, found in table.ranges.items():
        own = {table.records[position].name for position in found}
        naming[server] = names = NamesOfServer(server, own, table.servers, is_listable)
        for position in found:
            name = table.records[position].name
            stand_alone[position] = names.stands_alone(name)
            if name in shared or not stand_alone[position]:
                longer[position] = names.qualified(name)
    for name in set(longer.values()):
        # An alias of one tool may be the real name of another, which then uses its longer name.
        for position in table.named(name):
            if longer.get(position) != name:
                stand_alone[position] = False
                longer.setdefault(position, naming[table.records[position].server].qualified(name))
    return stand_alone, longer


def wire_json(definition: Definition, name: str) -> str:
    """A definition's JSON under another name, exactly as serialising the renamed definition would write it."""
    written = definition.wire_json
    try:
        own = '{"name":' + pydantic_core.to_json(definition.name).decode()
        if written.startswith(own):
            return '{"name":' + pydantic_core.to_json(name).decode() + written[len(own) :]
    except (UnicodeError, pydantic_core.PydanticSerializationError):
        # Half a surrogate pair: only serialising the complete definition handles it.
        pass
    return definition.sent().model_copy(update={"name": name}).model_dump_json()


class RunningTools:
    """The tools of running servers at their positions in the index, each under its current name."""

    def __init__(self, named: NamedTools | None = None, servers: Iterable[str] = ()) -> None:
        self.named = named or NamedTools()
        self.servers: set[str] = set()
        self.baseline_tokens = 0
        self._tools: list[CatalogTool | None] = [None] * len(self.named.alone)
        self._mask = bytearray(len(self.named.alone))
        self._bearers = dict.fromkeys(self.named.shared, 0)
        # Most names are unique; a tool with a unique name keeps it whatever else runs.
        self._plain = [
            None if record.name in self._bearers else alone or longer
            for record, alone, longer in zip(self.named.table.records, self.named.alone, self.named.longer, strict=True)
        ]
        self._plain_tokens = {
            server: sum(tool.listed_tokens for tool in self._plain[found.start : found.stop] if tool is not None)
            for server, found in self.named.table.ranges.items()
        }
        self._frozen: tuple[tuple[CatalogTool | None, ...], bytes] | None = None
        for server in servers:
            self.switch(server, on=True)

    def frozen(self) -> tuple[tuple[CatalogTool | None, ...], bytes]:
        """The tools by position, None where a server does not run, and the mask of running positions, a byte each.

        The same objects until something changes; many changes in a row cost one copy, made on demand.
        """
        if self._frozen is None:
            self._frozen = (tuple(self._tools), bytes(self._mask))
        return self._frozen

    def switch(self, server: str, *, on: bool) -> None:
        """Show or hide the tools of a server that came up or went down."""
        if (server in self.servers) == on:
            return
        (self.servers.add if on else self.servers.discard)(server)
        found = self.named.table.of_server(server)
        if not found:
            return
        self._frozen = None
        place = slice(found.start, found.stop)
        self._mask[place] = bytes([on]) * len(found)
        if on:
            self._tools[place] = self._plain[place]
            self.baseline_tokens += self._plain_tokens[server]
            self._join(self.named.sharing.get(server, ()))
        else:
            gone = self._tools[place]
            self._tools[place] = [None] * len(found)
            self.baseline_tokens -= sum(tool.listed_tokens for tool in gone if tool is not None)
            self._leave(self.named.sharing.get(server, ()))

    def _join(self, sharing: Sequence[tuple[int, str]]) -> None:
        """Add tools with shared names; a running tool that so far was the only one with such a name is renamed."""
        tools, bearers, alone, longer = self._tools, self._bearers, self.named.alone, self.named.longer
        for position, name in sharing:
            before = bearers[name]
            bearers[name] = before + 1
            if before == 1:
                self._rename(name)
            tool = tools[position] = (alone[position] or longer[position]) if not before else longer[position]
            self.baseline_tokens += tool.listed_tokens if tool is not None else 0

    def _leave(self, sharing: Sequence[tuple[int, str]]) -> None:
        """Remove tools with shared names; a tool that is now the only one with such a name is renamed."""
        bearers = self._bearers
        for _, name in sharing:
            before = bearers[name]
            bearers[name] = before - 1
            if before == 2:
                self._rename(name)

    def _rename(self, name: str) -> None:
        """Give the running tools with this own name that name if there is only one, otherwise their longer names."""
        is_alone = self._bearers[name] == 1
        for position in self.named.shared[name]:
            before = self._tools[position]
            if before is not None:
                tool = (self.named.alone[position] if is_alone else None) or self.named.longer[position]
                self._tools[position] = tool
                self.baseline_tokens += (tool.listed_tokens if tool is not None else 0) - before.listed_tokens


_SPARE_TERMS = 20_000
"""Unused terms that are always tolerated, because removing them costs more than keeping them."""

Records = Mapping[str, Sequence[ToolRecord]]
"""Tool records by server."""


@dataclass(frozen=True)
class IndexPlan:
    """The input of `build`, taken from the live catalog at one moment."""

    records: Records
    servers: tuple[str, ...]
    """All configured servers."""
    own_names: tuple[str, ...]
    """Names of the gateway's tools, which no server's tool may get."""
    running: frozenset[str]
    vocabulary: Vocabulary
    encoder: Encoder | None
    vectors: Mapping[str, Vector]
    named: NamedTools
    """The current names."""
    unapproved: Unapproved
    """From the same moment as the records, so no tool is both found and held, or neither."""


@dataclass(frozen=True)
class BuiltIndex:
    """An index over everything in the plan, and the values that belong to it."""

    index: SearchIndex
    running: RunningTools
    vectors: dict[str, Vector]
    vocabulary: Vocabulary
    records: Records
    """The plan's records, renumbered if the vocabulary is new."""


def build(plan: IndexPlan, count: Count) -> BuiltIndex:
    """Build the index and the names for a plan; `count` returns the tokens of a definition's JSON."""
    vocabulary, by_server = _in_one_vocabulary(plan.records, plan.vocabulary)
    records = tuple(record for server in sorted(by_server) for record in by_server[server])
    entries = [
        Entry(record.server, record.name, record.counts, plan.vectors.get(record.vector_key), record.successors)
        for record in records
    ]
    index = SearchIndex(entries, vocabulary, plan.encoder)
    named = name_tools(records, ServerNames(plan.servers, plan.own_names), count, plan.named)
    running = RunningTools(named, plan.running)
    return BuiltIndex(index, running, vectors_in(index.vectors, records), vocabulary, by_server)


def taken_over(current: Records, planned: Records, built: Records) -> tuple[Records, list[ToolRecord]]:
    """The built records where they are still current, otherwise the newer ones; and those newer records alone."""
    found, since = dict(current), list[ToolRecord]()
    for server, records in current.items():
        if records is planned.get(server):
            found[server] = built[server]
        else:
            since += records
    return found, since


def _in_one_vocabulary(records: Records, vocabulary: Vocabulary) -> tuple[Vocabulary, Records]:
    """Translate all records to one vocabulary; to a new one if most terms of the present one are unused."""
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
