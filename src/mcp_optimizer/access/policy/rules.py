"""The rules of the settings file, and which of them decides. Pure; knows no settings and no catalog.

The first rule that matches decides; where none does, a call is allowed. Of many rules only a few are looked at: a rule
can match only if a certain part of a name is there, such as a literal, the beginning or end of a glob, or three
characters in a row of what stands between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from mcp_optimizer.domain.decisions import Decision, Effect, RiskClass, Rule
from mcp_optimizer.domain.globs import Glob, glob
from mcp_optimizer.domain.principal import Principal, Risk

_GRAM = 3
"""Characters in a row by which a stretch between two stars is found."""
_LONGEST_END = 100
"""Characters of a beginning or an end that rules are filed under."""

Names = tuple[str, str, str]
"""The names of a call: server, tool, caller."""


class _Drawer(NamedTuple):
    """Where parts of one kind are kept: of which names, where in them, and how long."""

    fields: tuple[int, ...]
    kind: str
    length: int = 0


_ENDS: Final[Mapping[str, Callable[[int], slice]]] = {
    "whole": lambda _: slice(None),
    "begin": lambda length: slice(0, length),
    "end": lambda length: slice(-length, None),
}


class _Matcher(NamedTuple):
    """What a rule compares; patterns that match everything are left out."""

    checks: tuple[tuple[int, Callable[[str], bool]], ...]
    risk: Risk | None


class RuleIndex:
    """Rules, in the order in which they count."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        parts: dict[int, list[tuple[_Drawer, str]]] = {}
        self._matchers: list[_Matcher] = []
        seen = set()
        for number, rule in enumerate(rules):
            patterns = tuple(map(glob, (rule.server, rule.tool, rule.caller)))
            self._matchers.append(_matcher(patterns, rule.risk))
            # A rule that says of the same calls what an earlier one said never counts.
            same = (rule.server, rule.tool, rule.caller, rule.risk)
            if same not in seen:
                seen.add(same)
                parts[number] = list(_parts(patterns))
        shared = Counter(part for found in parts.values() for part in found)
        drawers: dict[_Drawer, dict[str, list[int]]] = {}
        self._anywhere: list[int] = []
        for number, found in parts.items():
            if found:
                drawer, text = min(found, key=shared.__getitem__)
                drawers.setdefault(drawer, {}).setdefault(text, []).append(number)
            else:
                self._anywhere.append(number)
        self._pairs = [(kind.fields, filed) for kind, filed in drawers.items() if len(kind.fields) > 1]
        self._inside = [(kind, filed) for kind, filed in drawers.items() if kind.kind == "inside"]
        self._ends = [
            (kind.fields[0], _ENDS[kind.kind](kind.length), filed)
            for kind, filed in drawers.items()
            if len(kind.fields) == 1 and kind.kind != "inside"
        ]

    def first(self, names: Names, risk: Risk) -> int | None:
        """The position of the first rule that matches."""
        best = len(self._matchers)
        for numbers in self._candidates(names):
            best = self._first_of(numbers, best, names, risk)
        return best if best < len(self._matchers) else None

    def _first_of(self, numbers: Sequence[int], best: int, names: Names, risk: Risk) -> int:
        """The first of these that matches, if that is before the best so far."""
        for number in numbers:
            if number >= best:
                break
            checks, only = self._matchers[number]
            if only is not None and only is not risk:
                continue
            for field, check in checks:
                if not check(names[field]):
                    break
            else:
                return number
        return best

    def _candidates(self, names: Names) -> Iterator[Sequence[int]]:
        yield self._anywhere
        for (one, other), filed in self._pairs:
            if numbers := filed.get(f"{names[one]}\0{names[other]}"):
                yield numbers
        for field, end, filed in self._ends:
            if numbers := filed.get(names[field][end]):
                yield numbers
        for kind, filed in self._inside:
            for gram in filed.keys() & _grams(names[kind.fields[0]], kind.length):
                yield filed[gram]


def _matcher(patterns: Sequence[Glob], risk: Risk | None) -> _Matcher:
    checks = [
        (field, pattern.text.__eq__ if pattern.is_literal else pattern.matches)
        for field, pattern in enumerate(patterns)
        if not pattern.is_everything
    ]
    # Comparing two texts is the cheapest way to find that a rule does not match.
    checks.sort(key=lambda check: not patterns[check[0]].is_literal)
    return _Matcher(tuple(checks), risk)


def _parts(patterns: Sequence[Glob]) -> Iterator[tuple[_Drawer, str]]:
    """Every part that a call must have for a rule with these patterns to match."""
    literal = [field for field, pattern in enumerate(patterns) if pattern.is_literal]
    for pair in combinations(literal, 2):
        yield _Drawer(pair, "whole"), "\0".join(patterns[field].text for field in pair)
    for field, pattern in enumerate(patterns):
        if pattern.is_literal:
            yield _Drawer((field,), "whole"), pattern.text
            continue
        if begin := pattern.prefix[:_LONGEST_END]:
            yield _Drawer((field,), "begin", len(begin)), begin
        if end := pattern.suffix[-_LONGEST_END:]:
            yield _Drawer((field,), "end", len(end)), end
        # Parts of a beginning or an end would be shared by all rules that share it, and more.
        for stretch in filter(None, pattern.plain[1:-1] if pattern.plain else pattern.literals):
            length = min(_GRAM, len(stretch))
            for gram in _grams(stretch, length):
                yield _Drawer((field,), "inside", length), gram


def _grams(text: str, length: int) -> set[str]:
    return {text[place : place + length] for place in range(len(text) - length + 1)}


NO_RULE: Final = "no rule matches"

_REMEMBERED: Final = 50_000
_LONGEST_REMEMBERED: Final = 1_000
"""Characters of the names of a call whose decision is remembered. Longer ones are decided anew each time."""

_ANY_TOOL: Final = "x"
"""Stands for all tools of a server, where only rules about all of them are asked."""


class RuleBook:
    """All rules, in the order in which they count."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._index = RuleIndex(self.rules)
        # What is not a tool (a resource, a prompt) is covered by rules about all tools of a server.
        self._for_servers = [rule for rule in self.rules if _covers_reading_anything(rule)]
        self._server_index = RuleIndex(self._for_servers)
        self._limited_callers = {rule.caller for rule in self.rules if rule.effect is not Effect.ALLOW}
        self.limits_callers = bool(self._limited_callers)
        """Whether any rule may refuse anybody something, or have a person asked."""
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decided)
        self._servers = lru_cache(maxsize=_REMEMBERED)(self._server_index.first)

    def decide(self, principal: Principal, server: str, tool: str, risk: RiskClass) -> Decision:
        """What the rules say about a call. What the caller's own key or token permits is decided before."""
        is_short = len(server) + len(tool) + len(principal.name) <= _LONGEST_REMEMBERED
        return (self._remembered if is_short else self._decided)((server, tool, principal.name), risk)

    def _decided(self, names: Names, risk: RiskClass) -> Decision:
        number = self._index.first(names, risk.risk)
        if number is None:
            return Decision(Effect.ALLOW, NO_RULE, risk)
        rule = self.rules[number]
        return Decision(rule.effect, f"rule {number + 1} of the settings", risk, rule.reason)

    def first_match(self, principal: Principal, server: str, tool: str, risk: Risk) -> int | None:
        """The position of the rule that decides, from 0; None if none does. For explanations."""
        return self._index.first((server, tool, principal.name), risk)

    def allows_server(self, principal: Principal, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts. A person is not asked about these."""
        number = self._servers((server, _ANY_TOOL, principal.name), Risk.READ)
        return number is None or self._for_servers[number].effect is Effect.ALLOW

    def limits(self, principal: Principal) -> bool:
        """Whether any rule may refuse this caller something, or have a person asked."""
        return any(glob(pattern).matches(principal.name) for pattern in self._limited_callers)


def _covers_reading_anything(rule: Rule) -> bool:
    # No tool's name is empty, so `?*` is about all tools as well.
    is_everything = "*" in rule.tool and rule.tool.strip("*") in ("", "?")
    return is_everything and rule.risk in (None, Risk.READ)
