"""The tools that a client gets in tools/list besides our own: the profile's, compressed, within its budget.

A list is built once per catalog, profile and presentation and then stays byte-for-byte identical, as prompt caches
need. Called by serving, from threads; knows no SDK type and no transport.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.catalog import CatalogTool, LiveCatalog, Snapshot
from mcp_optimizer.catalog.tool_forms import Form, ToolForms
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.compression.five_words import five_words
from mcp_optimizer.compression.short_descriptions import Level, ShortDescription, better_written, concise
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.gateway.resolving import called
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.profiles.tiers import (
    DEFAULT_BUDGETS,
    DEFAULT_CONCISE,
    Candidate,
    LoadStrategy,
    ProfileName,
    Profiles,
    Ranked,
    ToolProfile,
    rank,
)
from mcp_optimizer.profiles.tool_schema import (
    DescriptionState,
    LoadState,
    SchemaState,
    ToolSchema,
    shared_by_tool,
    shared_parameters,
    tool_schema,
)
from mcp_optimizer.token_counter import TokenCounter

_OVERHEAD = 1
"""Maximum tokens for the comma between two list entries."""

_ENVELOPE = 8
"""Maximum tokens for the `{"tools":[…]}` around a list."""

_AT_ONCE = 250
"""Definitions that are compressed ahead of time before a waiting request gets its turn."""


@dataclass(frozen=True)
class Presentation:
    """How to show tools to a client: the dialect of schemas, and whether it shows titles and annotations to people."""

    dialect: Dialect = Dialect.PLAIN
    shows_titles: bool = False


@dataclass(frozen=True)
class Registered:
    """The tools of a profile as listed."""

    profile: ToolProfile
    definitions: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class PhaseTokens:
    """What a tool costs with its schema compressed, and with its description reduced to five words as well."""

    compressed: int
    concise: int


class ToolLists:
    """Makes and caches the lists of directly registered tools."""

    def __init__(
        self,
        catalog: LiveCatalog,
        forms: ToolForms,
        counter: TokenCounter,
        pinned: Sequence[str] = (),
        budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
        uses: Callable[[], Mapping[str, int]] = dict,
        written: Callable[[], Mapping[str, str]] = dict,
        own: Callable[[], Sequence[Mapping[str, Any]]] = lambda: OWN_TOOLS,
        concise: Collection[ProfileName] = DEFAULT_CONCISE,
    ) -> None:
        self._concise = concise
        self._catalog = catalog
        self._forms = forms
        self._counter = counter
        self._pinned = tuple(pinned)
        self._budgets = budgets
        self._uses = uses
        self._written = written
        self._own = own
        self._default = Presentation(forms.dialect)
        self._lists: dict[Presentation, _Lists] = {}
        self._promoted: dict[str, None] = {}
        # Called from several threads; the second caller reuses the finished list.
        self._making = threading.Lock()

    def profiles(self, presentation: Presentation | None = None) -> Profiles:
        """The profiles of the current catalog."""
        with self._making:
            return self._current(presentation).profiles

    def listed(self, selected: ProfileName, presentation: Presentation | None = None) -> Registered:
        """The tools of a profile, without our own, in a fixed order."""
        with self._making:
            return self._current(presentation).listed(selected, self._promoted)

    def prepare(self, selected: ProfileName, presentation: Presentation) -> None:
        """Compress the tools of a profile without a budget before its list is built."""
        if self._budgets.get(selected) is None:
            tools = self._catalog.snapshot.running
            for start in range(0, len(tools), _AT_ONCE):
                with self._making:
                    self._forms.prepare(tools[start : start + _AT_ONCE], presentation.dialect)

    def tokens(self, tool: str, level: Level) -> int:
        """A tool's cost when it is registered with a description at this level."""
        with self._making:
            return self._current(None).definition(tool, level).tokens

    def phases(self, tool: str) -> PhaseTokens:
        """A tool's cost with its schema compressed and its server's own description, and then with that reduced to five
        words.
        """
        with self._making:
            return self._current(None).phases(tool)

    def total_tokens(self, selected: ProfileName) -> int:
        """The cost of a complete profile, including our own tools."""
        with self._making:
            return self._current(None).total_tokens(selected)

    def described(self, tool: str, level: Level) -> str:
        """A tool's description at a level."""
        return self.definition(tool, level).description or ""

    def definition(self, tool: str, level: Level) -> McpTool:
        """A tool as it is registered with a description at this level."""
        with self._making:
            return self._current(None).definition(tool, level).definition

    def tool_schema(self, tool: str, selected: ProfileName) -> ToolSchema:
        """A tool's schema, the parameters it shares with its server's other tools, and its state after each phase."""
        with self._making:
            lists = self._current(None)
            found, short = lists.snapshot.by_name[tool], lists.shorts[tool]
            siblings = [other.definition for other in lists.snapshot.running if other.server == found.server]
            cost = lists.definition(tool, Level.FULL).tokens
            is_eager = lists.profiles.strategy(tool, selected) is LoadStrategy.IMMEDIATE
            states = (
                SchemaState.COMPRESSED if cost < found.tokens else SchemaState.UNCOMPRESSED,
                LoadState.EAGER if is_eager else LoadState.LAZY,
                DescriptionState.CONCISE if selected in self._concise and short.text else DescriptionState.VERBOSE,
            )
            shared = shared_by_tool(shared_parameters(siblings))
            plans = self._forms.plans(found)
            profile = lists.profiles.tier_of[tool].profile
            return tool_schema(found.definition, shared, plans, profile, cost, short.text, states)

    def unclear(self) -> list[str]:
        """Tools that five words cannot distinguish from another tool; only their names do."""
        with self._making:
            return sorted(name for name, short in self._current(None).shorts.items() if not short.is_clear)

    def promote(self, tool: str, selected: ProfileName, presentation: Presentation | None = None) -> bool:
        """Register a tool after its first use, if its profile allows that and the budget has room."""
        with self._making:
            lists = self._current(presentation)
            if tool in self._promoted or tool not in lists.profiles.tier_of:
                return False
            if lists.profiles.strategy(tool, selected) is not LoadStrategy.ON_FIRST_USE:
                return False
            before = lists.listed(selected, self._promoted)
            self._promoted[tool] = None
            return lists.listed(selected, self._promoted).definitions != before.definitions

    def use_promoted(self, tools: Sequence[str]) -> bool:
        """Promote exactly these tools, in this order; returns whether that changes anything."""
        with self._making:
            before, self._promoted = self._promoted, dict.fromkeys(tools)
            return list(before) != list(self._promoted)

    def use(
        self,
        pinned: Sequence[str],
        budgets: Mapping[ProfileName, int | None],
        concise: Collection[ProfileName] = DEFAULT_CONCISE,
    ) -> None:
        with self._making:
            self._pinned, self._budgets, self._concise, self._lists = tuple(pinned), budgets, concise, {}

    def renew(self) -> None:
        """Rebuild the lists on the next request, because of a change outside the catalog."""
        with self._making:
            self._lists = {}

    def _current(self, presentation: Presentation | None) -> _Lists:
        wanted = presentation or self._default
        snapshot = self._catalog.snapshot
        known = self._lists.get(wanted)
        if known is None or known.snapshot.tools is not snapshot.tools:
            self._lists = {key: lists for key, lists in self._lists.items() if lists.snapshot.tools is snapshot.tools}
            same = next(iter(self._lists.values()), None)
            pinned = [
                tool.name for name in self._pinned for tool in called(snapshot, name) if tool.record.skill is None
            ]
            ranked = rank(_candidates(snapshot, self._uses()), pinned)
            written, before = self._written(), known or same
            made_with = (self._forms, self._counter, wanted, written, before, ranked, self._budgets, self._own())
            known = _Lists(snapshot, *made_with, self._concise)
            self._lists[wanted] = known
        return known


class _Lists:
    """The lists for one snapshot in one presentation."""

    def __init__(
        self,
        snapshot: Snapshot,
        forms: ToolForms,
        counter: TokenCounter,
        presentation: Presentation,
        written: Mapping[str, str],
        before: _Lists | None,
        ranked: Sequence[Ranked],
        budgets: Mapping[ProfileName, int | None],
        own: Sequence[Mapping[str, Any]],
        concise: Collection[ProfileName],
    ) -> None:
        self.snapshot = snapshot
        self._forms = forms
        self._counter = counter
        self._presentation = presentation
        self._written = written
        self._shorts = before.shorts_of(snapshot) if before else None
        self._sizes: dict[tuple[str, Level], int] = {}
        self._listed: dict[ProfileName, tuple[tuple[str, ...], Registered]] = {}
        self.own_tokens = sum(counter.count_many(list(map(compact, own)))) + _OVERHEAD * len(own) + _ENVELOPE
        self.profiles = Profiles(ranked, self.size, self.own_tokens, budgets, concise)

    @property
    def shorts(self) -> Mapping[str, ShortDescription]:
        """Five words for every tool, chosen on demand by comparing all tools."""
        if self._shorts is None:
            tools = self.snapshot.running
            chosen = five_words([tool.record.details for tool in tools])
            if self._written:
                chosen = better_written(chosen, [self._written.get(tool.record.definition_hash) for tool in tools])
            self._shorts = {tool.name: short for tool, short in zip(tools, chosen, strict=True)}
        return self._shorts

    def shorts_of(self, snapshot: Snapshot) -> Mapping[str, ShortDescription] | None:
        """The five-word descriptions, if they are known and still valid."""
        return self._shorts if snapshot.tools is self.snapshot.tools else None

    def size(self, candidate: Candidate, level: Level) -> int:
        key = (candidate.name, level)
        if key not in self._sizes:
            self._sizes[key] = self.definition(candidate.name, level).tokens + _OVERHEAD
        return self._sizes[key]

    def definition(self, name: str, level: Level) -> Form:
        tool = self.snapshot.by_name[name]
        form = self._forms.schema(tool, self._presentation.dialect)
        definition = form.definition
        if level is Level.WORDS:
            definition = concise(definition, self.shorts[name], tool.record.details.description or "")
        if self._presentation.shows_titles:
            definition = _with_titles(definition, tool)
        if definition is form.definition:
            return form
        return Form(definition, self._counter.count_tool_tokens(definition))

    def phases(self, name: str) -> PhaseTokens:
        tool = self.snapshot.by_name[name]
        form = self._forms.schema(tool, self._presentation.dialect).definition
        whole = form.model_copy(update={"description": tool.record.details.description})
        compressed = min(tool.tokens, self._counter.count_or_zero(whole.model_dump_json()) or tool.tokens)
        return PhaseTokens(compressed, min(compressed, self.definition(name, Level.WORDS).tokens))

    def listed(self, selected: ProfileName, promoted: Mapping[str, None]) -> Registered:
        profile = self.profiles.profile(selected)
        names = (*sorted(profile.tools), *self._promoted(profile, promoted))
        known = self._listed.get(selected)
        if known is None or known[0] != names:
            self._forms.prepare((self.snapshot.by_name[name] for name in names), self._presentation.dialect)
            made = tuple(self._entry(name, profile.level) for name in names)
            self._listed[selected] = known = (names, Registered(profile, made))
        return known[1]

    def _entry(self, name: str, level: Level) -> dict[str, Any]:
        entry: dict[str, Any]
        if level is Level.FULL and not self._presentation.shows_titles:
            entry = self._forms.listing(self.snapshot.by_name[name], self._presentation.dialect)
        else:
            entry = json.loads(self.definition(name, level).definition.model_dump_json())
        # A result may be truncated to text only, and clients reject that from a tool that declares a structure.
        entry.pop("outputSchema", None)
        return entry

    def total_tokens(self, selected: ProfileName) -> int:
        profile = self.profiles.profile(selected)
        if profile.tokens is not None:
            return profile.tokens
        return self.own_tokens + sum(self.definition(name, profile.level).tokens + _OVERHEAD for name in profile.tools)

    def _promoted(self, profile: ToolProfile, promoted: Mapping[str, None]) -> list[str]:
        """Tools promoted after their first use that still fit."""
        room = profile.room
        registered = set(profile.tools)
        found = []
        for name in promoted:
            if name not in self.snapshot.by_name or name in registered:
                continue
            cost = self.definition(name, profile.level).tokens + _OVERHEAD
            if room is None or cost <= room:
                found.append(name)
                room = None if room is None else room - cost
        return found


def _candidates(snapshot: Snapshot, uses: Mapping[str, int]) -> list[Candidate]:
    return [
        Candidate(tool.name, tool.server, tool.record.name, tool.tokens, uses.get(tool.name, 0))
        for tool in snapshot.running
    ]


def _with_titles(definition: McpTool, tool: CatalogTool) -> McpTool:
    """Adds the fields that a client shows to people before a call."""
    details = tool.record.details
    return definition.model_copy(update={"title": details.title, "annotations": details.annotations})
