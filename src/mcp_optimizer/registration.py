"""Which tools a client is given in tools/list besides our own: the profile's, compressed, within its budget.

A list is made once for a catalog and a profile and then stays as it is, byte for byte, so that prompt caches
hold. Called by the MCP face; knows no SDK type and no transport.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.catalog import CatalogTool, LiveCatalog, Snapshot
from mcp_optimizer.compression.descriptions import Level, ShortDescription, five_words
from mcp_optimizer.compression.documentation import shorten
from mcp_optimizer.db.models import McpTool
from mcp_optimizer.forms import ToolForms
from mcp_optimizer.own_tools import OWN_TOOLS
from mcp_optimizer.profiles.selection import DEFAULT_BUDGETS, LoadStrategy, Profiles, ToolProfile, make_profiles
from mcp_optimizer.profiles.tiers import Candidate, ProfileName, rank
from mcp_optimizer.token_counter import TokenCounter

_OVERHEAD = 1
"""Tokens of the comma between two entries of a list, at the most."""

_ENVELOPE = 8
"""Tokens of `{"tools":[…]}` around a list, at the most."""


@dataclass(frozen=True)
class Registered:
    """The tools of a profile as they are listed."""

    profile: ToolProfile
    definitions: tuple[dict[str, Any], ...]


class Registration:
    """Makes the lists of directly registered tools, and remembers them."""

    def __init__(
        self,
        catalog: LiveCatalog,
        forms: ToolForms,
        counter: TokenCounter,
        pinned: Sequence[str] = (),
        budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
        uses: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._catalog = catalog
        self._forms = forms
        self._counter = counter
        self._pinned = tuple(pinned)
        self._budgets = budgets
        self._uses = uses
        self._made: tuple[tuple[CatalogTool | None, ...], Profiles] | None = None
        self._lists: dict[ProfileName, Registered] = {}
        self._promoted: dict[str, None] = {}
        self._sizes: dict[tuple[str, str, Level], tuple[McpTool, int]] = {}
        self._shorts: dict[str, ShortDescription] = {}

    def profiles(self) -> Profiles:
        """The profiles of the catalog as it is now."""
        snapshot = self._catalog.snapshot
        if self._made is None or self._made[0] is not snapshot.tools:
            self._made = (snapshot.tools, self._make(snapshot))
            self._lists = {}
        return self._made[1]

    def listed(self, selected: ProfileName) -> Registered:
        """The tools of a profile, ours not included, in a fixed order."""
        profiles = self.profiles()
        if selected not in self._lists:
            self._lists[selected] = self._list(profiles, selected)
        return self._lists[selected]

    def tokens(self, tool: str, level: Level) -> int:
        """What a tool costs when it is registered, described at a level."""
        return self._definition(self._catalog.snapshot.by_name[tool], level)[1]

    def described(self, tool: str, level: Level) -> str:
        """A tool's description at a level."""
        self.profiles()
        return self._definition(self._catalog.snapshot.by_name[tool], level)[0].description or ""

    def unclear(self) -> list[str]:
        """Tools that no five of their words tell from another; their description stays a sentence."""
        self.profiles()
        return sorted(name for name, short in self._shorts.items() if not short.is_clear)

    def promote(self, tool: str, selected: ProfileName) -> bool:
        """Register a tool after its first use, if its profile wants that and the budget has room for it."""
        profiles = self.profiles()
        if tool in self._promoted or tool not in profiles.tier_of:
            return False
        if profiles.strategy(tool, selected) is not LoadStrategy.ON_FIRST_USE:
            return False
        self._promoted[tool] = None
        before = self._lists.pop(selected, None)
        return before is None or self.listed(selected).definitions != before.definitions

    def _make(self, snapshot: Snapshot) -> Profiles:
        uses = self._uses()
        candidates = [
            Candidate(tool.name, tool.server, tool.record.name, tool.tokens, uses.get(tool.name, 0))
            for tool in snapshot.running
        ]
        shorts = five_words([tool.record.details for tool in snapshot.running])
        self._shorts = {tool.name: short for tool, short in zip(snapshot.running, shorts, strict=True)}
        return make_profiles(rank(candidates, self._pinned), self._size, self._own_tokens(), self._budgets)

    def _own_tokens(self) -> int:
        own = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in OWN_TOOLS]
        return sum(self._counter.count_many(own)) + _OVERHEAD * len(own) + _ENVELOPE

    def _size(self, candidate: Candidate, level: Level) -> int:
        return self._definition(self._catalog.snapshot.by_name[candidate.name], level)[1] + _OVERHEAD

    def _definition(self, tool: CatalogTool, level: Level) -> tuple[McpTool, int]:
        key = (tool.record.definition_hash, tool.name, level)
        if key not in self._sizes:
            compressed = self._forms.compressed(tool).tool.model_copy(update={"name": tool.name})
            shortened = shorten(compressed, level, self._shorts.get(tool.name))
            self._sizes[key] = (shortened, self._counter.count_tool_tokens(shortened))
        return self._sizes[key]

    def _list(self, profiles: Profiles, selected: ProfileName) -> Registered:
        profile = profiles.by_name[selected]
        by_name = self._catalog.snapshot.by_name
        names = sorted(profile.tools)
        room = None if profile.token_budget is None else profile.token_budget - profile.tokens
        for name in self._promoted:
            if name in by_name and name not in profile.tools:
                cost = self._definition(by_name[name], profile.level)[1] + _OVERHEAD
                if room is None or cost <= room:
                    names.append(name)
                    room = None if room is None else room - cost
        definitions = tuple(self._definition(by_name[name], profile.level)[0].model_dump(mode="json") for name in names)
        return Registered(profile, definitions)
