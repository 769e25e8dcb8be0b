"""Finds the rule that decides about a call. Called by `policy`. Pure; knows no settings file and no catalog.

The first rule that matches decides; if none does, the call is allowed. An index selects the few rules to check: a rule
can match only if the call's names contain a certain part of its patterns, such as a literal, the beginning or end of a
glob, or three consecutive characters from between its stars.
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
"""Consecutive characters by which the text between two stars is indexed."""
_LONGEST_END = 100
"""Maximum characters of a beginning or an end that is indexed."""

Names = tuple[str, str, str]
"""The names of a call: server, tool, caller."""


class _Drawer(NamedTuple):
    """A kind of indexed part: the names it is taken from, its position in them, and its length."""

    fields: tuple[int, ...]
    kind: str
    length: int = 0


_ENDS: Final[Mapping[str, Callable[[int], slice]]] = {
    "whole": lambda _: slice(None),
    "begin": lambda length: slice(0, length),
    "end": lambda length: slice(-length, None),
}


class _Matcher(NamedTuple):
    """The comparisons of a rule, without patterns that match everything."""

    checks: tuple[tuple[int, Callable[[str], bool]], ...]
    risk: Risk | None
    group: str | None


Patterns = frozenset[str]
"""The patterns of groups that a caller's groups match: the same for any two callers whom rules treat alike."""

NO_PATTERNS: Final[Patterns] = frozenset()


class RuleIndex:
    """An index of rules in their order of precedence."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        parts: dict[int, list[tuple[_Drawer, str]]] = {}
        self._matchers: list[_Matcher] = []
        seen = set()
        for number, rule in enumerate(rules):
            patterns = tuple(map(glob, (rule.server, rule.tool, rule.caller)))
            self._matchers.append(_matcher(patterns, rule))
            # A rule with the same conditions as an earlier one can never decide.
            same = (rule.server, rule.tool, rule.caller, rule.risk, rule.group)
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

    def first(self, names: Names, risk: Risk, groups: Patterns = NO_PATTERNS) -> int | None:
        """The position of the first rule that matches."""
        best = len(self._matchers)
        for numbers in self._candidates(names):
            best = self._first_of(numbers, best, names, risk, groups)
        return best if best < len(self._matchers) else None

    def _first_of(self, numbers: Sequence[int], best: int, names: Names, risk: Risk, groups: Patterns) -> int:
        """The position of the first of these rules that matches, if it precedes the best so far; otherwise the best."""
        for number in numbers:
            if number >= best:
                break
            checks, only, group = self._matchers[number]
            if (only is not None and only is not risk) or (group is not None and group not in groups):
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


def _matcher(patterns: Sequence[Glob], rule: Rule) -> _Matcher:
    checks = [
        (field, pattern.text.__eq__ if pattern.is_literal else pattern.matches)
        for field, pattern in enumerate(patterns)
        if not pattern.is_everything
    ]
    # Literals first: comparing two texts is the cheapest way to rule out a match.
    checks.sort(key=lambda check: not patterns[check[0]].is_literal)
    return _Matcher(tuple(checks), rule.risk, rule.group)


def _parts(patterns: Sequence[Glob]) -> Iterator[tuple[_Drawer, str]]:
    """Every part that a call's names must contain for a rule with these patterns to match."""
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
        # Only text between stars: grams of a beginning or an end are less selective than the whole of it.
        for stretch in filter(None, pattern.plain[1:-1] if pattern.plain else pattern.literals):
            length = min(_GRAM, len(stretch))
            for gram in _grams(stretch, length):
                yield _Drawer((field,), "inside", length), gram


def _grams(text: str, length: int) -> set[str]:
    return {text[place : place + length] for place in range(len(text) - length + 1)}


NO_RULE: Final = "no rule matches"

_REMEMBERED: Final = 50_000
_CALLERS_REMEMBERED: Final = 1_000
"""Maximum sets of groups whose matching patterns are cached."""
_LONGEST_REMEMBERED: Final = 1_000
"""Maximum total characters of names whose decision is cached. Longer ones are decided anew each time."""

_ANY_TOOL: Final = "x"
"""A stand-in tool name for lookups among rules that cover all tools of a server."""


class RuleBook:
    """All rules in their order of precedence, with cached decisions."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._index = RuleIndex(self.rules)
        # Resources and prompts are covered by the rules about all tools of a server.
        self._for_servers = [rule for rule in self.rules if _covers_reading_anything(rule)]
        self._server_index = RuleIndex(self._for_servers)
        self._group_patterns = {rule.group for rule in self.rules if rule.group is not None}
        self._limited_callers = {(rule.caller, rule.group) for rule in self.rules if rule.effect is not Effect.ALLOW}
        self.limits_callers = bool(self._limited_callers)
        """Whether any rule may refuse a call, or require approval."""
        self.names_groups = bool(self._group_patterns)
        """Whether any rule is about callers in certain groups."""
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decided)
        self._matched = lru_cache(maxsize=_CALLERS_REMEMBERED)(self._matched_by)
        self._servers = lru_cache(maxsize=_REMEMBERED)(self._server_index.first)

    def decide(self, principal: Principal, server: str, tool: str, risk: RiskClass) -> Decision:
        """The decision of the rules. The limits of the caller's own key or token are checked before."""
        is_short = len(server) + len(tool) + len(principal.name) <= _LONGEST_REMEMBERED
        groups = self._groups_of(principal)
        return (self._remembered if is_short else self._decided)((server, tool, principal.name), risk, groups)

    def _decided(self, names: Names, risk: RiskClass, groups: Patterns) -> Decision:
        number = self._index.first(names, risk.risk, groups)
        if number is None:
            return Decision(Effect.ALLOW, NO_RULE, risk)
        rule = self.rules[number]
        return Decision(rule.effect, f"rule {number + 1} of the settings", risk, rule.reason)

    def first_match(self, principal: Principal, server: str, tool: str, risk: Risk) -> int | None:
        """The position of the rule that decides, from 0; None if no rule matches. For explanations."""
        return self._index.first((server, tool, principal.name), risk, self._groups_of(principal))

    def allows_server(self, principal: Principal, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts. No person is asked about these."""
        number = self._servers((server, _ANY_TOOL, principal.name), Risk.READ, self._groups_of(principal))
        return number is None or self._for_servers[number].effect is Effect.ALLOW

    def limits(self, principal: Principal) -> bool:
        """Whether any rule may refuse this caller a call, or require approval."""
        groups = self._groups_of(principal)
        return any(
            (group is None or group in groups) and glob(pattern).matches(principal.name)
            for pattern, group in self._limited_callers
        )

    def _groups_of(self, principal: Principal) -> Patterns:
        """The patterns of rules that a caller's groups match."""
        return self._matched(principal.groups) if self._group_patterns and principal.groups else NO_PATTERNS

    def _matched_by(self, groups: frozenset[str]) -> Patterns:
        compiled = map(glob, self._group_patterns)
        return frozenset(
            one.pattern for one in compiled if (one.text in groups if one.is_literal else any(map(one.matches, groups)))
        )


def _covers_reading_anything(rule: Rule) -> bool:
    # No tool's name is empty, so `?*` also matches all tools.
    is_everything = "*" in rule.tool and rule.tool.strip("*") in ("", "?")
    return is_everything and rule.risk in (None, Risk.READ)
