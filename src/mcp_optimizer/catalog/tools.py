"""A tool in the catalog: its definition, its cost, how it is found, and its names for clients. Values only.

The table of all possible names is built in a thread, once per index. Which of its names a tool currently has depends on
the other running servers; see `building`.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

from mcp_optimizer.compression.compress import without_envelope
from mcp_optimizer.domain.extensions import AppTool, app_tool
from mcp_optimizer.domain.naming import ServerNames
from mcp_optimizer.domain.skills import Skill, skill_in
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.search.deprecation import successors
from mcp_optimizer.search.lexical import TermCounts, Vocabulary, count_terms
from mcp_optimizer.search.tool_texts import document, tool_text


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool of a server, ready to be found, counted and called."""

    server: str
    definition: Definition
    token_count: int
    counts: TermCounts
    vector_key: str
    successors: tuple[str, ...] | None = None
    """The names that a deprecated tool points to; None if it is not deprecated."""
    purpose: str = ""
    """The description of its server in the server file."""
    hints: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """The claims of its annotations about its effects."""
    sent_tokens: int = 0
    """The part of `token_count` that clients send to a model: the name, the description and the input schema."""
    app: AppTool | None = None
    """What it declares for hosts that show pages."""
    skill: Skill | None = None
    """What is known of the skill, if it is one and not a tool."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def details(self) -> McpTool:
        return self.definition.details

    @property
    def definition_hash(self) -> str:
        return self.definition.definition_hash

    @property
    def is_for_apps_only(self) -> bool:
        """Whether its server's pages may call it and models may not see it."""
        return self.app is not None and self.app.is_for_apps_only

    @property
    def is_for_models(self) -> bool:
        """Whether it is a tool that models may see."""
        return self.skill is None and not self.is_for_apps_only

    @property
    def text(self) -> str:
        """The text that an encoder reads."""
        return tool_text(self.server, self.definition.parsed(), self.purpose)


def vector_key(text: str) -> str:
    """The key of a tool's vector: a hash of the text that the encoder reads, which includes the server's name."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class ServerText:
    """The text about a server: its description in the server file, and the admitted part of its own instructions."""

    purpose: str = ""
    instructions: str = ""

    @property
    def words(self) -> str:
        return f"{self.purpose} {self.instructions}".strip()


NOTHING_SAID = ServerText()


def make_records(
    server: str,
    definitions: Sequence[Definition],
    counts: Mapping[str, int],
    vocabulary: Vocabulary,
    said: ServerText = NOTHING_SAID,
) -> list[ToolRecord]:
    """The records of a server's tools, ordered by name whatever order the server uses."""
    return [
        _record(server, definition, counts.get(definition.definition_hash, 0), vocabulary, said)
        for definition in sorted(definitions, key=lambda definition: definition.name)
    ]


def _record(
    server: str, definition: Definition, token_count: int, vocabulary: Vocabulary, said: ServerText
) -> ToolRecord:
    tool = definition.parsed()
    counts = count_terms(document(server, tool, said.words), vocabulary)
    deprecated = successors(tool.title or "", tool.description or "", tool.annotations or {})
    key = vector_key(tool_text(server, tool, said.purpose))
    skill = skill_in(definition)
    hints = effect_hints(tool.annotations)
    sent = _sent_tokens(definition, tool, token_count) if skill is None else token_count
    app = app_tool((tool.model_extra or {}).get("_meta"))
    return ToolRecord(server, definition, token_count, counts, key, deprecated, said.purpose, hints, sent, app, skill)


def _sent_tokens(definition: Definition, tool: McpTool, token_count: int) -> int:
    """Estimated by its share of the characters, because counting would double the counting time at every start. On the
    demo's 85 tools the estimate is half a percent below the count.
    """
    if not token_count:
        return 0
    sent = len(without_envelope(tool).model_dump_json())
    return min(token_count, round(token_count * sent / len(definition.wire_json)))


_NO_HINTS: Mapping[str, bool] = {}
_HINTS = ("readOnlyHint", "destructiveHint")


def effect_hints(annotations: Mapping[str, Any] | None) -> Mapping[str, bool]:
    """The claims of annotations about a tool's effects; values other than true and false are ignored."""
    if not annotations:
        return _NO_HINTS
    return {name: value for name in _HINTS if isinstance(value := annotations.get(name), bool)} or _NO_HINTS


_BEGINNINGS = (5, 2)
"""Lengths of the prefixes by which similar names are looked up, nearest first."""


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool of a running server, as clients see it."""

    record: ToolRecord
    name: str
    tokens: int

    @property
    def server(self) -> str:
        return self.record.server

    @property
    def listed_tokens(self) -> int:
        """The tokens that it costs a model without a gateway: none if only pages may call it."""
        return 0 if self.record.is_for_apps_only else self.tokens

    @property
    def key(self) -> tuple[str, str]:
        """Its server and its own name on that server; unique."""
        record = self.record
        return record.server, record.definition.name

    @property
    def definition(self) -> McpTool:
        """The definition under its public name; otherwise exactly what the server sent."""
        details = self.record.details
        return details if details.name == self.name else details.model_copy(update={"name": self.name})


@dataclass(frozen=True)
class NameTable:
    """The positions of an index's tools: by server, by every possible name, and by prefix of the name.

    `records` are ordered by server, then by name.
    """

    records: tuple[ToolRecord, ...] = ()
    servers: ServerNames = field(default_factory=ServerNames)
    ranges: Mapping[str, range] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    """The first tool of each name."""
    further: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The other tools of a shared name; separate, because most names belong to one tool and need no list."""
    beginnings: Mapping[str, Sequence[int]] = field(default_factory=dict)
    for_apps: tuple[int, ...] = ()
    """Tools that models may not see."""
    with_page: tuple[int, ...] = ()
    """Tools that declare something for hosts that show pages, those of `for_apps` among them."""
    skills: tuple[int, ...] = ()
    """Skills, which are found like tools and listed apart from them."""
    _parts: WeakValueDictionary[tuple[object, ...], NameTable] = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, records: Sequence[ToolRecord], servers: ServerNames, others: Iterable[tuple[str, int]] = ()
    ) -> NameTable:
        """`others` are names in addition to the tools' own, each with its tool's position."""
        starts: dict[str, int] = {}
        ends: dict[str, int] = {}
        first: dict[str, int] = {}
        further: dict[str, list[int]] = {}
        beginnings: dict[str, list[int]] = {}
        with_page = tuple(position for position, record in enumerate(records) if record.app is not None)
        for_apps = tuple(position for position in with_page if records[position].is_for_apps_only)
        skills = tuple(position for position, record in enumerate(records) if record.skill is not None)
        for position, record in enumerate(records):
            starts.setdefault(record.server, position)
            ends[record.server] = position + 1
            for beginning in _beginnings(record.name):
                beginnings.setdefault(beginning, []).append(position)
        owns = ((record.name, position) for position, record in enumerate(records))
        for name, position in chain(owns, others):
            if first.setdefault(name, position) != position:
                further.setdefault(name, []).append(position)
        ranges = {server: range(start, ends[server]) for server, start in starts.items()}
        return cls(tuple(records), servers, ranges, first, further, beginnings, for_apps, with_page, skills)

    def some(
        self, positions: Sequence[int], named: Collection[str] | None, others: Iterable[tuple[str, int]]
    ) -> NameTable:
        """The table of some tools alone, with `others` as in `of`, shared by all that need the same. `named`: the
        servers whose names count as such; None means all.
        """
        others = tuple(others)
        among = None if named is None else frozenset(named)
        key = (array("q", positions).tobytes(), among, others)
        if (found := self._parts.get(key)) is None:
            servers = self.servers if among is None else self.servers.among(among)
            found = self._parts[key] = NameTable.of([self.records[at] for at in positions], servers, others)
        return found

    def named(self, name: str) -> Sequence[int]:
        """Positions of the tools that have, or may get, this name."""
        first = self.first.get(name)
        return () if first is None else (first, *self.further.get(name, ()))

    def of_server(self, server: str) -> range:
        return self.ranges.get(server, range(0))

    def position(self, server: str, own: str) -> int | None:
        """The position of a server's tool with this own name."""
        first = self.first.get(own)
        if first is not None and self.records[first].server == server and self.records[first].name == own:
            # The usual case: no other server has a tool with this name.
            return first
        found = self.of_server(server)
        at = bisect_left(found, own, key=lambda position: self.records[position].name)
        return found[at] if at < len(found) and self.records[found[at]].name == own else None

    def called(self, own: str) -> list[int]:
        """Positions of the tools with this own name."""
        return [position for position in self.named(own) if self.records[position].name == own]

    def beginning_like(self, name: str) -> Iterator[int]:
        """Positions of the tools whose own names share a prefix with a name, longest prefix first."""
        for beginning in _beginnings(name):
            yield from self.beginnings.get(beginning, ())


def _beginnings(name: str) -> list[str]:
    return [name[:length].lower() for length in _BEGINNINGS]
