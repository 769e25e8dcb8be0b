"""How a catalog was used: found, called, never used, how fast, at what cost; and what to do about it. Pure.

Events in, plain values out, for the terminal, for pages and for programs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey
from mcp_optimizer.metrics.savings import PLAIN_PRICES, Assumptions, Prices, Savings, savings, sessions

_OFTEN = 5
"""Number of times from which something counts as a habit."""

_LARGE_RESULT = 5_000
_FAILS_OFTEN = 0.2
_MOST_ADVICE = 8
_MOST_CLIENTS = 50
_SECONDS = {"hour": 3_600, "day": 86_400}
_FEW_DAYS = 2 * 86_400


@dataclass(frozen=True)
class Weight:
    """A tool of the catalog: its server, its name, the cost of its definition."""

    server: str
    tool: str
    tokens: int

    @property
    def key(self) -> ToolKey:
        return (self.server, self.tool)


def make_usage(
    events: Sequence[Event],
    catalog: Sequence[Weight],
    assumptions: Assumptions,
    prices: Prices = PLAIN_PRICES,
) -> dict[str, Any]:
    """The complete usage; empty lists where nothing happened."""
    calls = [event for event in events if event.kind is EventKind.CALL]
    found = Counter(key for event in events for key in event.found)
    called = Counter((event.server, event.tool) for event in calls if event.tool)
    saved = savings(events, assumptions)
    return {
        "events": len(events),
        "since": _moment(min((event.at for event in events), default=None)),
        "until": _moment(max((event.at for event in events), default=None)),
        "savings": {**saved.as_values(), "assumptions": stated(assumptions, PLAIN_PRICES)},
        "money": {**saved.as_values(prices), **_priced(assumptions, prices)} if prices.model else None,
        "results": _results(calls),
        "kinds": [_row({"kind": kind.value}, own) for kind, own in _by(events, lambda event: event.kind)],
        "clients": [_row({"client": name}, own) for name, own in _few(_by(events, lambda event: event.client))],
        "called": [
            _row({"server": key[0], "tool": key[1]}, own)
            for key, own in _by(calls, lambda event: (event.server, event.tool))
            if key[1]
        ],
        "found": [
            {"server": server, "tool": tool, "times": times, "called": called[(server, tool)]}
            for (server, tool), times in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
        "never_called": _never_called(catalog, called),
        **_periods(events, assumptions),
        "advice": advice(events, catalog, found, called),
    }


def stated(assumptions: Assumptions, prices: Prices) -> list[str]:
    """The assumptions behind the numbers, in words printed next to them."""
    requests = assumptions.requests_per_session
    asked = f"at least {requests} a conversation" if requests else "one for each call and one more"
    unit = "of the full price" if not prices.model else f"{prices.currency} a million tokens"
    read = f"{prices.cache_read * 100:.0f} %" if not prices.model else f"{prices.cache_read:g}"
    write = f"{prices.cache_write * 100:.0f} %" if not prices.model else f"{prices.cache_write:g}"
    return [
        f"Model requests: {asked}; without the gateway, fewer by the number of searches and lists.",
        "Without the gateway, each request carries all definitions of the running servers and every result uncut.",
        f"With a prompt cache, tokens of the previous request cost {read} and new ones {write}, {unit}.",
        "What the user wrote and the model answered is the same in both, and left out.",
        "Half an hour of silence ends a conversation.",
    ]


def _priced(assumptions: Assumptions, prices: Prices) -> dict[str, Any]:
    return {"model": prices.model, "currency": prices.currency, "assumptions": stated(assumptions, prices)}


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _by(events: Iterable[Event], key: Any) -> list[tuple[Any, list[Event]]]:
    """Events by a key, most frequent first."""
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _few(groups: list[tuple[str, list[Event]]]) -> list[tuple[str, list[Event]]]:
    """The most frequent ones, and the others together, because clients choose their own names."""
    if len(groups) <= _MOST_CLIENTS:
        return groups
    others = [event for _, own in groups[_MOST_CLIENTS:] for event in own]
    return [*groups[:_MOST_CLIENTS], (f"{len(groups) - _MOST_CLIENTS:,} others", others)]


def _row(labels: Mapping[str, str], own: Sequence[Event]) -> dict[str, Any]:
    taken = sorted(event.milliseconds for event in own)
    return {
        **labels,
        "times": len(own),
        "tokens": sum(event.tokens for event in own),
        "full_tokens": sum(event.full_tokens for event in own),
        "failed": sum(event.outcome is not Outcome.OK for event in own),
        "cached": sum(event.cached for event in own),
        "truncated": sum(event.truncated for event in own),
        "p50_ms": round(taken[len(taken) // 2], 1),
        "p95_ms": round(taken[min(len(taken) - 1, int(len(taken) * 0.95))], 1),
    }


def _results(calls: Sequence[Event]) -> dict[str, Any]:
    """Results before and after limits."""
    before, after = sum(event.full_tokens for event in calls), sum(event.tokens for event in calls)
    percent = round((before - after) / before * 100, 2) if before else 0.0
    return {"before": before, "after": after, "saved": before - after, "percent": percent}


def _never_called(catalog: Iterable[Weight], called: Mapping[ToolKey, int]) -> list[dict[str, Any]]:
    """By server: the tools that nobody called, largest first."""
    every, never = Counter[str](), defaultdict[str, list[Weight]](list)
    for weight in catalog:
        every[weight.server] += 1
        if not called.get(weight.key):
            never[weight.server].append(weight)
    rows = [
        {
            "server": server,
            "tools": len(own),
            "of": every[server],
            "tokens": sum(weight.tokens for weight in own),
            "names": [w.tool for w in sorted(own, key=lambda w: (-w.tokens, w.tool))],
        }
        for server, own in never.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["tokens"])), str(row["server"])))


def _periods(events: Sequence[Event], assumptions: Assumptions) -> dict[str, Any]:
    """By the day, or if there are few by the hour, in which a conversation began; UTC."""
    began = [(_began(session), session) for session in sessions(events)]
    span = max((at for at, _ in began), default=0.0) - min((at for at, _ in began), default=0.0)
    unit = "hour" if span < _FEW_DAYS else "day"
    size = _SECONDS[unit]
    totals: dict[float, Savings] = defaultdict(Savings)
    counts: dict[float, Counter[EventKind]] = defaultdict(Counter)
    for at, session in began:
        begin = at // size * size
        totals[begin] += savings(session, assumptions)
        counts[begin].update(event.kind for event in session)
    rows = [
        {
            "begin": datetime.fromtimestamp(begin, UTC).isoformat(timespec="minutes")[: None if unit == "hour" else 10],
            "finds": counts[begin][EventKind.FIND],
            "calls": counts[begin][EventKind.CALL],
            "without": totals[begin].without.tokens,
            "with": totals[begin].with_us.tokens,
            "saved": totals[begin].without.tokens - totals[begin].with_us.tokens,
        }
        for begin in sorted(totals)
    ]
    return {"period": unit, "periods": rows}


def _began(session: Sequence[Event]) -> float:
    """A list loaded before a silence comes first, perhaps from another day."""
    return next((event for event in session if event.kind is not EventKind.LOAD), session[-1]).at


def advice(
    events: Sequence[Event], catalog: Sequence[Weight], found: Mapping[ToolKey, int], called: Mapping[ToolKey, int]
) -> list[str]:
    """What a user can do, most important first. Says nothing about what was not used enough to judge."""
    if not called:
        return _advice_on_weights(catalog)
    told = [
        *_unused(catalog, called),
        *_pins(events, catalog),
        *_troubles(events),
        *_overlooked(catalog, found, called),
    ]
    return told[:_MOST_ADVICE]


def _unused(catalog: Sequence[Weight], called: Mapping[ToolKey, int]) -> list[str]:
    told = []
    for row in _never_called(catalog, called):
        server, tools, every, tokens = row["server"], row["tools"], row["of"], row["tokens"]
        if tools == every:
            told.append(
                f"No tool of `{server}` was ever called: {tokens:,} tokens. If unused, set "
                '"disabled": true in the server file.'
            )
        elif tools > 1:
            told.append(f"{tools:,} of the {every:,} tools of `{server}` were never called: {tokens:,} tokens.")
    return told[:4]


def _pins(events: Sequence[Event], catalog: Collection[Weight]) -> list[str]:
    """Tools that most conversations use need not be searched for each time."""
    told = list(sessions(events))
    wanted = Counter(
        key for session in told for key in {(e.server, e.tool) for e in session if e.kind is EventKind.CALL and e.tool}
    )
    known = {weight.key for weight in catalog}
    often = [key for key, times in wanted.most_common(3) if times >= _OFTEN and times * 2 > len(told) and key in known]
    if not often:
        return []
    names = ",".join(tool for _, tool in often)
    return [f"Most conversations call {', '.join(f'`{tool}`' for _, tool in often)}: register them directly "
            f"with --profile minimal --pinned-tools {names}."]  # fmt: skip


def _troubles(events: Sequence[Event]) -> list[str]:
    told = []
    for (server, tool), own in _by((e for e in events if e.kind is EventKind.CALL and e.tool), _key):
        failed = sum(event.outcome not in (Outcome.OK, Outcome.BAD_REQUEST) for event in own)
        wrong = sum(event.outcome is Outcome.BAD_REQUEST for event in own)
        average = sum(event.tokens for event in own) // len(own)
        if len(own) >= _OFTEN and failed >= len(own) * _FAILS_OFTEN:
            told.append(f"`{tool}` of `{server}` failed {failed} of {len(own)} times: see `mcp-optimizer doctor`.")
        if len(own) >= _OFTEN and wrong >= len(own) * _FAILS_OFTEN:
            told.append(
                f"`{tool}` of `{server}` got wrong arguments {wrong} of {len(own)} times: its description misleads."
            )
        if average >= _LARGE_RESULT:
            told.append(f"Results of `{tool}` of `{server}` average {average:,} tokens: limit them, or request less.")
    return told


def _overlooked(catalog: Sequence[Weight], found: Mapping[ToolKey, int], called: Mapping[ToolKey, int]) -> list[str]:
    known = {weight.key for weight in catalog}
    missed = [(times, key) for key, times in found.items() if times >= _OFTEN and not called.get(key) and key in known]
    return [
        f"`{tool}` of `{server}` was found {times} times and never called: does its description promise too much?"
        for times, (server, tool) in sorted(missed, reverse=True)[:2]
    ]


def _advice_on_weights(catalog: Sequence[Weight]) -> list[str]:
    """Nothing was called yet, so advise only on size."""
    total = sum(weight.tokens for weight in catalog)
    if not total:
        return []
    servers: Counter[str] = Counter()
    for weight in catalog:
        servers[weight.server] += weight.tokens
    told = []
    server, tokens = servers.most_common(1)[0]
    if len(servers) > 1 and tokens * 3 > total:
        told.append(f"`{server}` alone has {tokens / total * 100:.0f} % of all tokens of definitions.")
    heaviest = sorted(catalog, key=lambda weight: -weight.tokens)[: max(1, len(catalog) // 20)]
    share = sum(weight.tokens for weight in heaviest)
    if len(catalog) >= 20:
        told.append(
            f"The heaviest {len(heaviest):,} of {len(catalog):,} tools have {share / total * 100:.0f} % of all tokens: "
            f"`{heaviest[0].tool}` of `{heaviest[0].server}` alone {heaviest[0].tokens:,}."
        )
    return told


def _key(event: Event) -> ToolKey:
    return (event.server, event.tool)
