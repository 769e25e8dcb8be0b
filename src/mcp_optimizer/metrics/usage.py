"""Summarizes how a catalog was used: finds, calls, unused tools, speed, cost, and what to do about them. Pure.

Events in, frozen values out. `report` writes them for programs, `cli/report_tables` for the terminal, `dashboard`
for pages; none of them computes anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from mcp_optimizer.domain.client_habits import LONGEST_RESULT
from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey
from mcp_optimizer.errors import listed
from mcp_optimizer.metrics.advice import ListingCosts, SavingsVerdict, advice, grouped, tool_key, verdict
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.savings import (
    PLAIN_PRICES,
    Assumptions,
    Conversation,
    Prices,
    Savings,
    conversations,
    together,
)
from mcp_optimizer.metrics.weights import UncalledTools, Weight, never_called, sent_total
from mcp_optimizer.runtime.terminal_text import counted

_MOST_CLIENTS = 50
_MOST_ON_DEMAND = 5
_FEW_DAYS = 2 * 86_400
_FEW_HOURS = 3 * 3_600

PeriodUnit = Literal["minute", "hour", "day"]
_SECONDS: Mapping[PeriodUnit, int] = {"minute": 300, "hour": 3_600, "day": 86_400}
"""Seconds in a period of each unit; `minute` stands for five minutes."""


@dataclass(frozen=True)
class Activity:
    """A group of events: their number, cost, outcomes and durations."""

    times: int
    tokens: int
    full_tokens: int
    failed: int
    cached: int
    truncated: int
    p50_ms: float
    p95_ms: float

    @classmethod
    def of(cls, events: Sequence[Event]) -> Activity:
        """Needs at least one event."""
        taken = sorted(event.milliseconds for event in events)
        return cls(
            times=len(events),
            tokens=sum(event.tokens for event in events),
            full_tokens=sum(event.full_tokens for event in events),
            failed=sum(event.outcome is not Outcome.OK for event in events),
            cached=sum(event.cached for event in events),
            truncated=sum(event.truncated for event in events),
            p50_ms=round(taken[len(taken) // 2], 1),
            p95_ms=round(taken[min(len(taken) - 1, int(len(taken) * 0.95))], 1),
        )

    @property
    def tokens_each(self) -> int:
        return self.tokens // self.times


@dataclass(frozen=True)
class KindActivity:
    """The activity of one event kind."""

    kind: EventKind
    activity: Activity


@dataclass(frozen=True)
class NamedActivity:
    """The activity of one client, by the name that it gives itself, or of one caller, by its verified name."""

    name: str
    activity: Activity


@dataclass(frozen=True)
class ToolCalls:
    """A tool that was called."""

    server: str
    tool: str
    activity: Activity

    @property
    def key(self) -> ToolKey:
        return (self.server, self.tool)


@dataclass(frozen=True)
class ToolFinds:
    """A tool that searches returned, and how often it was called."""

    server: str
    tool: str
    times: int
    called: int

    @property
    def key(self) -> ToolKey:
        return (self.server, self.tool)


@dataclass(frozen=True)
class UsagePeriod:
    """The conversations that began within five minutes, one hour or one day, UTC."""

    begin: datetime
    finds: int
    calls: int
    without: int
    """Tokens that models would have read without the gateway."""
    with_us: int

    @property
    def saved(self) -> int:
        return self.without - self.with_us


@dataclass(frozen=True)
class PricedSavings:
    """Savings at given prices, with the assumptions behind them in words."""

    savings: Savings
    prices: Prices
    assumptions: tuple[str, ...]

    @property
    def uncached(self) -> Reduction:
        return self.savings.cost(self.prices, cached=False)

    @property
    def cached(self) -> Reduction:
        return self.savings.cost(self.prices, cached=True)


@dataclass(frozen=True)
class Usage:
    """The summary of a history; empty tuples if nothing happened."""

    events: int
    since: datetime | None
    until: datetime | None
    savings: PricedSavings
    money: PricedSavings | None
    """The same savings in money, if a model is configured."""
    results: Reduction
    """Results before and after limits."""
    scripts: Reduction
    """What scripts' calls returned, against what the scripts returned: the rest stayed out of the context."""
    kinds: tuple[KindActivity, ...]
    clients: tuple[NamedActivity, ...]
    callers: tuple[NamedActivity, ...]
    called: tuple[ToolCalls, ...]
    found: tuple[ToolFinds, ...]
    never_called: tuple[UncalledTools, ...]
    period: PeriodUnit
    periods: tuple[UsagePeriod, ...]
    advice: tuple[str, ...]
    verdict: SavingsVerdict
    on_demand: tuple[str, ...] = ()
    """Clients that load tools on demand themselves."""
    unknown: tuple[str, ...] = ()
    """Clients of which it is not known what they send."""
    others: int = 0
    """Events of other configurations, and of servers that this one no longer has; no other number includes them."""

    @property
    def on_demand_told(self) -> str:
        """The clients for which no saving of definitions is claimed, in words; "" if there are none."""
        told = []
        if self.on_demand:
            loads = "this client loads" if len(self.on_demand) == 1 else "these clients load"
            told.append(f"{listed(self.on_demand, _MOST_ON_DEMAND)}: {loads} tools on demand; only results count.")
        if self.unknown:
            names = listed([name or "programs without a name" for name in self.unknown], _MOST_ON_DEMAND)
            told.append(f"{names}: whether all definitions would have been sent is not known; only results count.")
        return " ".join(told)

    @property
    def others_told(self) -> str:
        """The omitted events, in words; "" if there are none."""
        return f"Other configurations: {counted(self.others, 'event')}." if self.others else ""

    @property
    def stated(self) -> PricedSavings:
        """The savings whose assumptions appear next to the numbers: in money, if available."""
        return self.money or self.savings

    @property
    def days(self) -> str:
        """The first and the last day, for people; "" if nothing happened."""
        return " to ".join(at.date().isoformat() for at in (self.since, self.until) if at is not None)

    def times(self, kind: EventKind) -> int:
        return sum(row.activity.times for row in self.kinds if row.kind is kind)


def make_usage(
    events: Sequence[Event],
    catalog: Sequence[Weight],
    assumptions: Assumptions,
    prices: Prices = PLAIN_PRICES,
    others: int = 0,
) -> Usage:
    """Makes the summary. `others`: the number of events left out because they are about other servers."""
    calls = [event for event in events if event.kind is EventKind.CALL]
    scripts = [event for event in events if event.kind is EventKind.SCRIPT]
    found = Counter(key for event in events for key in event.found)
    called = Counter(tool_key(event) for event in calls if event.tool)
    told = conversations(events, assumptions)
    saved = together(told)
    unit, periods = _periods(told)
    names = sorted({event.client for event in events if event.kind is not EventKind.LOAD})
    on_demand = tuple(filter(assumptions.loads_on_demand, names))
    unknown = tuple(one for one in names if one not in on_demand and not assumptions.sends_definitions(one))
    only_results = bool(names) and len(on_demand) + len(unknown) == len(names)
    listing = ListingCosts.of(len(catalog), sent_total(catalog), assumptions.own_tokens, events)
    return Usage(
        events=len(events),
        since=_moment(min((event.at for event in events), default=None)),
        until=_moment(max((event.at for event in events), default=None)),
        savings=PricedSavings(saved, PLAIN_PRICES, stated(assumptions, PLAIN_PRICES)),
        money=PricedSavings(saved, prices, stated(assumptions, prices)) if prices.model else None,
        results=Reduction.of(sum(event.full_tokens for event in calls), sum(event.tokens for event in calls)),
        scripts=Reduction.of(sum(event.full_tokens for event in scripts), sum(event.tokens for event in scripts)),
        kinds=tuple(KindActivity(kind, Activity.of(own)) for kind, own in grouped(events, lambda event: event.kind)),
        clients=_by_name(events, lambda event: event.client),
        callers=_by_name(events, lambda event: event.caller),
        called=tuple(ToolCalls(*key, Activity.of(own)) for key, own in grouped(calls, tool_key) if key[1]),
        found=tuple(
            ToolFinds(*key, times, called[key])
            for key, times in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        never_called=never_called(catalog, called),
        period=unit,
        periods=periods,
        advice=advice(told.values(), catalog, found, called, listing),
        verdict=verdict(saved, events, listing, only_results=only_results),
        on_demand=on_demand,
        unknown=unknown,
        others=others,
    )


def stated(assumptions: Assumptions, prices: Prices) -> tuple[str, ...]:
    """The assumptions behind the numbers, in words printed next to them."""
    requests = assumptions.requests_per_session
    asked = f"at least {requests} a conversation" if requests else "one for each call and one more"
    unit = "of the full price" if not prices.model else f"{prices.currency} a million tokens"
    read = f"{prices.cache_read * 100:.0f} %" if not prices.model else f"{prices.cache_read:g}"
    write = f"{prices.cache_write * 100:.0f} %" if not prices.model else f"{prices.cache_write:g}"
    return (
        f"Model requests: {asked}; without the gateway, fewer by the number of searches and lists.",
        "Without the gateway, each request of a client that is known to send them carries name, description and input "
        f"schema of all tools of running servers; results are uncut, up to {LONGEST_RESULT:,} tokens each. "
        f"No request is larger than {assumptions.window:,} tokens, and a result is in later requests only where the "
        "client tells its conversations apart.",
        f"With a prompt cache, tokens of the previous request cost {read} and new ones {write}, {unit}.",
        "The user's messages and the model's answers are the same in both, and left out.",
        "Half an hour of silence ends a conversation.",
    )


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _by_name(events: Sequence[Event], name_of: Callable[[Event], str]) -> tuple[NamedActivity, ...]:
    """The most frequent names, and all others together, because clients choose their own names."""
    groups = grouped(events, name_of)
    if others := groups[_MOST_CLIENTS:]:
        together = [event for _, own in others for event in own]
        groups = [*groups[:_MOST_CLIENTS], (f"{len(others):,} more", together)]
    return tuple(NamedActivity(name, Activity.of(own)) for name, own in groups)


def _periods(told: Mapping[Conversation, Sequence[Event]]) -> tuple[PeriodUnit, tuple[UsagePeriod, ...]]:
    """Conversations by the period in which they began: days or, for a short history, hours or five minutes; UTC."""
    began = {conversation: _began(own) for conversation, own in told.items()}
    span = max(began.values(), default=0.0) - min(began.values(), default=0.0)
    unit: PeriodUnit = "hour" if span < _FEW_DAYS else "day"
    unit = "minute" if told and span < _FEW_HOURS else unit
    size = _SECONDS[unit]
    totals: dict[float, Savings] = defaultdict(Savings)
    counts: dict[float, Counter[EventKind]] = defaultdict(Counter)
    for conversation, own in told.items():
        begin = began[conversation] // size * size
        totals[begin] += conversation.savings
        counts[begin].update(event.kind for event in own)
    return unit, tuple(
        UsagePeriod(
            begin=datetime.fromtimestamp(begin, UTC),
            finds=counts[begin][EventKind.FIND],
            calls=counts[begin][EventKind.CALL],
            without=totals[begin].without.tokens,
            with_us=totals[begin].with_us.tokens,
        )
        for begin in sorted(totals)
    )


def _began(events: Sequence[Event]) -> float:
    """When a conversation began. A list is loaded before that; if nothing else happened, the last load counts."""
    return next((event for event in events if event.kind is not EventKind.LOAD), events[-1]).at
