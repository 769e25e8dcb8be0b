"""Ranks tools for registration by readable rules, assigns each a tier, and fits tiers into token budgets. Pure.

Core: pinned tools, tools that were used, and the tools for each server's basic work: list and get its main things,
create, update and move the first of them, one search, one health check, and the list that its work begins with. Common:
further basic verbs. Rare: the rest. Where names say nothing, the lightest tools come first. At most about a fifth of a
server's tools are Core, and about half are Core or Common, unless pins and use add more. Ties are broken by server and
name, so the same catalog always gives the same list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.terminal_text import counted
from mcp_optimizer.search.words import STOP_WORDS, words

BASIC_VERBS = ("list", "get", "create", "update", "move", "search", "health")
"""In order of importance."""

_LIKE_BASIC = {
    "read": "get",
    "fetch": "get",
    "show": "get",
    "describe": "get",
    "find": "search",
    "query": "search",
    "add": "create",
    "write": "create",
    "edit": "update",
    "set": "update",
    "ping": "health",
    "status": "health",
}
_READING = ("list", "get")
_CHANGING = ("create", "update", "move")
_MAIN_THINGS = 3
_CORE_SHARE = 5
_COMMON_SHARE = 2
_PREFIX_SHARE = 0.8
"""If at least this share of a server's tools begin with the same word, the word describes none of them."""

_LONGEST_WORD = 20
"""Maximum letters of a word that describes a server."""


class ProfileName(StrEnum):
    """How much of the catalog is registered directly."""

    MINIMAL = "Minimal"
    STANDARD = "Standard"
    FULL = "Full"


class Tier(StrEnum):
    """How often a tool is likely to be needed."""

    CORE = "Core"
    COMMON = "Common"
    RARE = "Rare"

    @property
    def profile(self) -> ProfileName:
        """The smallest profile that registers such tools."""
        return _PROFILES[self]


_PROFILES = dict(zip(Tier, ProfileName, strict=True))


class Reason(StrEnum):
    """Why a tool has its rank."""

    PINNED = "pinned in the settings"
    USED = "used before"
    BASIC = "basic work of its server"
    WEIGHT = "by token weight"


@dataclass(frozen=True)
class Candidate:
    """A tool to rank: its public name, its own name, its cost when registered, and how often it was used."""

    name: str
    server: str
    own_name: str
    tokens: int
    uses: int = 0


@dataclass(frozen=True)
class Ranked:
    """A tool in rank order, with the reason for its rank, and its tier."""

    candidate: Candidate
    reason: Reason
    tier: Tier


class _Task(NamedTuple):
    """What a tool's name says: a basic verb and the thing it acts on; "" for a missing part."""

    verb: str
    thing: str


def rank(candidates: Sequence[Candidate], pinned: Iterable[str] = ()) -> list[Ranked]:
    """Every tool once, highest rank first. `pinned`: public names."""
    wanted = {name: place for place, name in enumerate(pinned)}
    keyed: list[tuple[tuple[int, int, str, str], Ranked]] = []
    for server in _by_server(candidates).values():
        places = _places(server)
        for candidate in server:
            place = places[candidate.name]
            if (pin := wanted.get(candidate.name)) is not None:
                order, ranked = (0, pin), Ranked(candidate, Reason.PINNED, Tier.CORE)
            elif candidate.uses:
                order, ranked = (1, -candidate.uses), Ranked(candidate, Reason.USED, Tier.CORE)
            else:
                # Servers take turns: the first tool of each, then the second of each.
                order = (2 + list(Tier).index(place.tier), place.turn)
                ranked = Ranked(candidate, place.reason, place.tier)
            keyed.append(((*order, candidate.server, candidate.name), ranked))
    return [ranked for _, ranked in sorted(keyed, key=lambda pair: pair[0])]


def _by_server(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        found[candidate.server].append(candidate)
    return found


class _PlaceOfTool(NamedTuple):
    """A tool's turn among its server's tools, its tier, and the reason."""

    turn: int
    tier: Tier
    reason: Reason


def _places(tools: Sequence[Candidate]) -> dict[str, _PlaceOfTool]:
    """The place of each tool among its server's tools."""
    tasks = {tool.name: task for tool, task in zip(tools, _tasks([tool.own_name for tool in tools]), strict=True)}
    basic = _basic_work(tools, tasks)
    weight = {tool.name: (tool.tokens, tool.name) for tool in tools}
    spoken_of = Counter(word for task in tasks.values() for word in set(task.thing.split()))
    further = sorted(
        (name for name, task in tasks.items() if name not in basic and task.verb),
        key=lambda name: (_further(tasks[name], spoken_of), weight[name]),
    )
    rest = sorted(set(tasks) - set(basic) - set(further), key=lambda name: weight[name])
    order = [*basic, *further, *rest]
    fifth, half = -(-len(tools) // _CORE_SHARE), len(tools) // _COMMON_SHARE
    # If no name indicates basic work, the first of the remaining tools are Core.
    core = min(len(basic), fifth) or fifth
    named = {*basic, *further}
    return {
        name: _PlaceOfTool(
            turn,
            Tier.CORE if turn < core else Tier.COMMON if turn < half else Tier.RARE,
            Reason.BASIC if name in named else Reason.WEIGHT,
        )
        for turn, name in enumerate(order)
    }


def _basic_work(tools: Sequence[Candidate], tasks: Mapping[str, _Task]) -> list[str]:
    """The tools for a server's basic work, most needed first."""
    lightest = {tool.name: (tool.tokens, tool.name) for tool in tools}
    by_task: dict[_Task, str] = {}
    for name in sorted(tasks, key=lambda name: lightest[name]):
        by_task.setdefault(tasks[name], name)
    things = _main_things(tasks.values())
    wanted = [_Task(verb, thing) for thing in things for verb in _READING]
    wanted[len(_READING) : len(_READING)] = [_Task(verb, thing) for thing in things[:1] for verb in _CHANGING]
    found = [by_task[task] for task in wanted if task in by_task]
    # Of several searches or health checks, only the lightest.
    searches = [by_task[task] for thing in things if (task := _Task("search", thing)) in by_task]
    checks = [name for name, task in tasks.items() if task.verb == "health"]
    for group in (searches, checks, _beginnings(tasks)):
        found += sorted(group, key=lambda name: lightest[name])[:1]
    return list(dict.fromkeys(found))


def _main_things(tasks: Iterable[_Task]) -> list[str]:
    """The main things of a server: those that most basic verbs act on, then those that most tools name."""
    verbs: dict[str, set[str]] = defaultdict(set)
    named: Counter[str] = Counter()
    for task in tasks:
        if task.thing:
            named.update({task.thing, *task.thing.split()})
            if task.verb:
                verbs[task.thing].add(task.verb)
    return sorted(verbs, key=lambda thing: (-len(verbs[thing]), -named[thing], thing))[:_MAIN_THINGS]


def _beginnings(tasks: Mapping[str, _Task]) -> list[str]:
    """Lists of a thing that no other tool names: where the server's work takes place, such as its instances."""
    named = Counter(word for task in tasks.values() for word in set(task.thing.split()))
    return [
        name
        for name, task in tasks.items()
        if task.verb == "list"
        and len(tasks) > 1
        and task.thing
        and all(named[word] == 1 for word in task.thing.split())
    ]


def _further(task: _Task, spoken_of: Mapping[str, int]) -> tuple[bool, int, str, int]:
    """Sort key for closeness to basic work: one-word things first, then things that many tools name, then by verb."""
    return (" " in task.thing, -spoken_of.get(task.thing, 0), task.thing, BASIC_VERBS.index(task.verb))


def things(names: Sequence[str]) -> list[str]:
    """The things that a server's tools act on, according to their names: single words, most frequent first, in the
    plural where a name has it.
    """
    spelt = [words(name) for name in names]
    named = Counter(word for task in _tasks(names) for word in set(task.thing.split()))
    # A first word that only one tool has is its action, not the thing it acts on.
    for first in {_singular(name[0]) for name in spelt if name}:
        if named[first] == 1:
            del named[first]
    found = sorted(filter(_says_something, named), key=lambda word: (-named[word], word))
    as_spelt = {word for name in spelt for word in name}
    return [plural if (plural := _plural(word)) in as_spelt else word for word in found]


def _says_something(word: str) -> bool:
    return word.isalpha() and 2 < len(word) <= _LONGEST_WORD and word not in STOP_WORDS and word not in _VERBS


def _plural(word: str) -> str:
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def _tasks(names: Sequence[str]) -> list[_Task]:
    spelt = [words(name) for name in names]
    first = Counter(name[0] for name in spelt if name)
    # `jira_get_issue`, `jira_list_boards`: a first word that nearly all tools share is the server's name.
    common = {word for word, count in first.items() if count > 2 and count >= _PREFIX_SHARE * len(names)}
    return [_task(name[1:] if len(name) > 1 and name[0] in common - _VERBS else name) for name in spelt]


_VERBS = frozenset({*BASIC_VERBS, *_LIKE_BASIC})


def _task(spelt: Sequence[str]) -> _Task:
    """Splits a name into verb and thing, in either order (`issue_read`); any name of a health check counts as one."""
    verbs = [_LIKE_BASIC.get(word, word) for word in spelt]
    thing = [_singular(word) for word in spelt if not word.isdigit()]
    if verbs and verbs[0] in BASIC_VERBS:
        return _Task(verbs[0], " ".join(thing[1:]))
    if verbs and verbs[-1] in BASIC_VERBS:
        return _Task(verbs[-1], " ".join(thing[:-1]))
    return _Task("", " ".join(thing[1:]))


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


# Fits tools into token budgets: which tools each profile registers. A profile registers the tools of its tier and of
# the tiers before it, by rank, as far as its budget allows. A budget is an upper bound: nothing is added to fill it,
# and no description is shortened to fit more tools in.

Size = Callable[[Candidate, Level], int]
"""A tool's cost when it is registered with a description at this level."""

DEFAULT_BUDGETS: Mapping[ProfileName, int | None] = {
    ProfileName.MINIMAL: 9_000,
    ProfileName.STANDARD: 20_000,
    ProfileName.FULL: None,
}
DEFAULT_CONCISE = frozenset({ProfileName.MINIMAL})
"""Profiles whose tools are described in at most five words."""

_LEAST = 16
"""Approximate tokens of the smallest possible tool; with less room, no further tool is tried."""

_TRIES = 20
"""After this many tools in a row do not fit, no more are measured."""


class LoadStrategy(StrEnum):
    """When a tool is registered with the client."""

    IMMEDIATE = "Immediate"
    ON_FIRST_USE = "OnFirstUse"
    ON_DEMAND = "OnDemand"


@dataclass(frozen=True)
class ToolProfile:
    """The tools that a profile registers, its budget, the level of its descriptions, and the tools that did not fit.

    `tokens` is None without a budget, because nothing had to be counted.
    """

    profile_name: ProfileName
    token_budget: int | None
    level: Level
    tools: tuple[str, ...]
    tokens: int | None
    left_out: tuple[str, ...] = ()
    load_strategy: LoadStrategy = LoadStrategy.IMMEDIATE
    """When the profile's tools are registered for a client that selects it."""

    @property
    def room(self) -> int | None:
        """Tokens left in the budget."""
        return None if self.token_budget is None or self.tokens is None else self.token_budget - self.tokens

    @property
    def measures(self) -> str:
        """For people: how the profile's tools are described, and how many did not fit."""
        parts = ["described in five words"] if self.level is Level.WORDS else []
        parts += [f"{counted(len(self.left_out), 'tool')} left to find_tool"] if self.left_out else []
        return ", ".join(parts) or "as they are"


class Profiles:
    """All profiles of a catalog, and the tier of each tool. Each profile is built on demand.

    `own_tokens` is the cost of the gateway's own tools, which are part of every list.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        size: Size,
        own_tokens: int,
        budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
        concise: Collection[ProfileName] = DEFAULT_CONCISE,
    ) -> None:
        self._ranked = ranked
        self._size = size
        self._own_tokens = own_tokens
        self._budgets = budgets
        self._concise = concise
        self._made: dict[ProfileName, ToolProfile] = {}
        self._names: dict[ProfileName, frozenset[str]] = {}

    def profile(self, name: ProfileName) -> ToolProfile:
        if name not in self._made:
            level = Level.WORDS if name in self._concise else Level.FULL
            place = _ORDER.index(name)
            wanted = [entry for entry in self._ranked if _ORDER.index(entry.tier.profile) <= place]
            if place and self._budgets[name] is not None:
                # A larger profile registers every tool that a smaller one does.
                kept = self._registered(_ORDER[place - 1])
                wanted.sort(key=lambda entry: entry.candidate.name not in kept)
            self._made[name] = _fit(name, wanted, self._size, self._own_tokens, self._budgets[name], level)
        return self._made[name]

    @lazy
    def by_name(self) -> Mapping[ProfileName, ToolProfile]:
        return {name: self.profile(name) for name in ProfileName}

    @lazy
    def tier_of(self) -> Mapping[str, Tier]:
        """Each tool's tier, and so the one profile that it belongs to, whether or not that profile has room for it."""
        return {entry.candidate.name: entry.tier for entry in self._ranked}

    @lazy
    def reasons(self) -> Mapping[str, Reason]:
        return {entry.candidate.name: entry.reason for entry in self._ranked}

    def strategy(self, tool: str, selected: ProfileName) -> LoadStrategy:
        """When a tool is registered under the selected profile: at once, after its first use, or on demand."""
        if tool in self._registered(selected):
            return LoadStrategy.IMMEDIATE
        return max(strategy_of(self.tier_of[tool].profile, selected), LoadStrategy.ON_FIRST_USE, key=_STRATEGIES.index)

    def _registered(self, selected: ProfileName) -> frozenset[str]:
        if selected not in self._names:
            self._names[selected] = frozenset(self.profile(selected).tools)
        return self._names[selected]


_ORDER = list(ProfileName)
_STRATEGIES = list(LoadStrategy)


def strategy_of(profile: ProfileName, selected: ProfileName) -> LoadStrategy:
    """When the tools that a profile adds are registered for a client that selected the same or another profile."""
    distance = _ORDER.index(profile) - _ORDER.index(selected)
    return _STRATEGIES[min(max(distance, 0), len(_STRATEGIES) - 1)]


def _fit(
    name: ProfileName, wanted: Sequence[Ranked], size: Size, own_tokens: int, budget: int | None, level: Level
) -> ToolProfile:
    """Selects the tools that fit, in order of rank; a pinned or used tool is always tried."""
    if budget is None:
        return ToolProfile(name, None, level, tuple(entry.candidate.name for entry in wanted), None)
    chosen: list[str] = []
    left_out: list[str] = []
    total, failed = own_tokens, 0
    for entry in wanted:
        is_deserving = entry.reason in (Reason.PINNED, Reason.USED)
        is_tried = budget - total >= _LEAST and (is_deserving or failed < _TRIES)
        cost = size(entry.candidate, level) if is_tried else None
        if cost is not None and total + cost <= budget:
            chosen.append(entry.candidate.name)
            total, failed = total + cost, 0
        else:
            left_out.append(entry.candidate.name)
            failed += 1
    return ToolProfile(name, budget, level, tuple(chosen), total, tuple(left_out))
