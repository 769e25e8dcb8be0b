"""Finds the first of many rules that matches a call, looking at few of them. Called by `rules`. Pure.

A rule can match only if a certain part of a name is there: all of a literal, the beginning or end of a glob, or three
characters in a row of what stands between its stars. Each rule is filed under the one part that it shares with the
fewest other rules, and a call looks only at rules whose part it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from mcp_optimizer.domain.decisions import Rule
from mcp_optimizer.domain.globs import Glob, glob
from mcp_optimizer.domain.principal import Risk

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


class _Matcher(NamedTuple):
    """What a rule compares; patterns that match everything are left out."""

    checks: tuple[tuple[int, Callable[[str], bool]], ...]
    risk: Risk | None

    def matches(self, names: Names, risk: Risk) -> bool:
        if self.risk is not None and self.risk is not risk:
            return False
        return all(check(names[field]) for field, check in self.checks)


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
        self._drawers: Sequence[tuple[_Drawer, Mapping[str, list[int]]]] = tuple(drawers.items())

    def first(self, names: Names, risk: Risk) -> int | None:
        """The position of the first rule that matches."""
        best = len(self._matchers)
        for numbers in self._candidates(names):
            for number in numbers:
                if number >= best:
                    break
                if self._matchers[number].matches(names, risk):
                    best = number
                    break
        return best if best < len(self._matchers) else None

    def _candidates(self, names: Names) -> Iterator[Sequence[int]]:
        yield self._anywhere
        for drawer, filed in self._drawers:
            for text in _found(drawer, names):
                if numbers := filed.get(text):
                    yield numbers


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
        for stretch in pattern.literals:
            length = min(_GRAM, len(stretch))
            for gram in _grams(stretch, length):
                yield _Drawer((field,), "inside", length), gram


def _found(drawer: _Drawer, names: Names) -> Collection[str]:
    """The parts that a call has, of those that one drawer may hold."""
    if len(drawer.fields) > 1:
        return ("\0".join(names[field] for field in drawer.fields),)
    name = names[drawer.fields[0]]
    if drawer.kind == "whole":
        return (name,)
    if drawer.kind == "begin":
        return (name[: drawer.length],)
    if drawer.kind == "end":
        return (name[-drawer.length :],)
    return _grams(name, drawer.length)


def _grams(text: str, length: int) -> set[str]:
    return {text[place : place + length] for place in range(len(text) - length + 1)}
