"""The one place that decides whether a caller may call a tool, by its rules and its rate: for search, lists, calls,
resources and prompts alike.

Called by the gateway and the relay, which enforce it. Knows neither the catalog nor how a person is asked.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from mcp_optimizer.access.policy.risk import LONGEST_REMEMBERED, overridden, risk_by_definition
from mcp_optimizer.domain.caller import Decision, Effect, Principal, Risk, RiskClass, Rule
from mcp_optimizer.domain.globs import Glob, glob
from mcp_optimizer.errors import CallRefused, TooManyCalls

# Finds the rule that decides about a call. The first rule that matches decides; if none does, the call is allowed. An
# index selects the few rules to check: a rule can match only if the call's names contain a certain part of its
# patterns, such as a literal, the beginning or end of a glob, or three consecutive characters from between its stars.

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


# Limits how often a caller may call. Each caller has a bucket that holds a minute's calls and refills steadily, so a
# burst passes and the rate holds. An act that costs several calls needs only one call left and owes the rest, so even
# the lowest rate eventually permits it.

_MINUTE: Final = 60.0
_MOST_BUCKETS: Final = 10_000


class _Bucket:
    """The calls that one caller has left."""

    def __init__(self, left: float, now: float) -> None:
        self._left = left
        self._at = now

    def take(self, limit: int, now: float, calls: int) -> float | None:
        self._left = min(limit, self._left + (now - self._at) * limit / _MINUTE)
        self._at = now
        if self._left < 1:
            return (1 - self._left) * _MINUTE / limit
        self._left -= calls
        return None


class Rates:
    """The calls that every caller has left. `per_minute` applies to callers without their own rate; 0: no limit."""

    def __init__(
        self, per_minute: int = 0, *, clock: Callable[[], float] = time.monotonic, most: int = _MOST_BUCKETS
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def use(self, per_minute: int) -> None:
        """Change the default limit."""
        self._per_minute = per_minute

    def limit_of(self, principal: Principal) -> int:
        """How many calls a minute a caller may make; 0: any number."""
        own = principal.calls_per_minute
        return self._per_minute if own is None else own

    def take(self, principal: Principal, calls: int = 1) -> float | None:
        """Count calls: None if they may be made, otherwise the seconds until the next may. A refusal costs nothing."""
        limit = self.limit_of(principal)
        return self._take(principal, limit, calls) if limit > 0 else None

    def check(self, principal: Principal, calls: int = 1) -> None:
        """Count calls, or raise `TooManyCalls`."""
        limit = self.limit_of(principal)
        if limit > 0 and (wait := self._take(principal, limit, calls)) is not None:
            raise TooManyCalls(limit, wait)

    def _take(self, principal: Principal, limit: int, calls: int) -> float | None:
        now = self._clock()
        bucket = self._buckets.get(principal.id)
        if bucket is None:
            bucket = self._buckets[principal.id] = _Bucket(limit, now)
            if len(self._buckets) > self._most:
                # The caller that has been idle longest most likely has a full bucket, and a new bucket is full too.
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(principal.id)
        return bucket.take(limit, now, calls)


THE_CALLERS_SERVERS: Final = "the caller's servers"
LACKING_SCOPES: Final = "the token's scopes"

_ONLY: Final = {Risk.READ: "the caller may only read", Risk.WRITE: "the caller may only read and write"}


class Policy:
    """Decides what callers may do: first by their own keys and tokens, then by the rules."""

    def __init__(self, rulebook: RuleBook | None = None, overrides: Mapping[str, Risk] | None = None) -> None:
        self.use(rulebook or RuleBook(), overrides or {})

    def use(self, rulebook: RuleBook, overrides: Mapping[str, Risk]) -> None:
        """Decide by these from now on. The rulebook is a new object each time, which invalidates cached decisions."""
        self.rulebook = rulebook
        self._overrides = dict(overrides)
        self._overridden = lru_cache(maxsize=50_000)(self._override)

    def risk(self, server: str, tool: str, annotations: object) -> RiskClass:
        """The risk class of a tool, and its source."""
        if self._overrides:
            is_short = len(tool) <= LONGEST_REMEMBERED
            given = self._overridden(server, tool) if is_short else self._override(server, tool)
            if given is not None:
                return given
        return risk_by_definition(tool, annotations)

    def _override(self, server: str, tool: str) -> RiskClass | None:
        return overridden(server, tool, self._overrides)

    def decide(self, principal: Principal, server: str, tool: str, annotations: object) -> Decision:
        """Whether a caller may call a server's tool. `tool` is the tool's own name on its server."""
        risk = self.risk(server, tool, annotations)
        denied = own_limits(principal, server, risk) if principal.is_limited else None
        return denied or self.rulebook.decide(principal, server, tool, risk)

    def decide_server(self, principal: Principal, server: str) -> bool:
        """Whether a caller may read a server's resources and use its prompts.

        Of the rules, only those about all tools of a server apply, for every class or for read. `ask` refuses here,
        because no person is asked about a list.
        """
        if principal.servers is not None and server not in principal.servers:
            return False
        return self.rulebook.allows_server(principal, server)

    def is_open_for(self, principal: Principal) -> bool:
        """Whether nothing can be refused to this caller or need approval, so that it sees the whole catalog."""
        book = self.rulebook
        return not principal.is_limited and not (book.limits_callers and book.limits(principal))


def own_limits(principal: Principal, server: str, risk: RiskClass) -> Decision | None:
    """The refusal by the caller's own key or token; None if those permit the call."""
    if principal.servers is not None and server not in principal.servers:
        return Decision(Effect.DENY, THE_CALLERS_SERVERS, risk)
    if not principal.risk.covers(risk.risk):
        return Decision(Effect.DENY, _ONLY[principal.risk], risk)
    return None


def call_refusal(decision: Decision, server: str, tool: str) -> CallRefused:
    """The error for a call that was not allowed, with advice."""
    risk = decision.risk
    if decision.because == THE_CALLERS_SERVERS:
        because = f"{THE_CALLERS_SERVERS} do not include {server!r}"
        advice = "Use a tool of another server, or a key that includes this one."
    elif decision.because in _ONLY.values():
        because = f"{decision.because}, and this tool counts as {risk.risk} (by {SOURCES[risk.source]})"
        advice = "Use a tool that does less, or a key with more rights; the operator can set the class in tool_risks."
    elif decision.because == LACKING_SCOPES:
        because = f"{LACKING_SCOPES} are not enough for a tool that counts as {risk.risk} (by {SOURCES[risk.source]})"
        advice = "Tell the user: a token with more scopes can call it."
    elif decision.effect is Effect.ASK:
        because = f"{decision.because} needs a person's agreement, and no person agreed"
        advice = "Tell the user which call you wanted to make, and why."
    else:
        because = f"{decision.because} denies it"
        advice = "The operator can see why with `mcp-optimizer policy test`."
    return CallRefused(tool, server, because, decision.reason, advice)


SOURCES: Final = {
    "override": "the operator's setting",
    "annotations": "its annotations",
    "name": "its name",
    "default": "default: its effect is not declared",
}
