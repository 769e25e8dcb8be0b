"""What a user can do about a catalog, from its weights and from what was used of it. Pure; called by reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey
from mcp_optimizer.metrics.grouping import grouped, tool_key
from mcp_optimizer.metrics.verdict import ListingCosts
from mcp_optimizer.metrics.weights import Weight, by_server, never_called, total

_OFTEN = 5
"""Number of times from which something counts as a habit."""

ENOUGH_DAYS = 3
ENOUGH_USES = 20
"""Days of history, and searches and calls in it, before a tool that nobody called counts as unused."""

_DAY = 86_400
_LARGE_RESULT = 5_000
_FAILS_OFTEN = 0.2
_MOST_ADVICE = 8


def advice(
    conversations: Collection[Sequence[Event]],
    catalog: Sequence[Weight],
    found: Mapping[ToolKey, int],
    called: Mapping[ToolKey, int],
    listing: ListingCosts | None = None,
) -> tuple[str, ...]:
    """What a user can do, most important first. Says nothing about what was not used enough to judge.

    `listing`: what it costs to list all tools, and to search them instead.
    """
    small = [listing.advice] if listing is not None and listing.is_cheaper else []
    if not called:
        return (*small, *_advice_on_weights(catalog))
    told = [
        *small,
        *_unused(catalog, called, [event for own in conversations for event in own]),
        *_pins(conversations, catalog),
        *_troubles(event for own in conversations for event in own),
        *_overlooked(catalog, found, called),
    ]
    return tuple(told[:_MOST_ADVICE])


def _unused(catalog: Sequence[Weight], called: Mapping[ToolKey, int], events: Sequence[Event]) -> list[str]:
    """Only after some days of use, because tools that nobody needed today may be needed tomorrow."""
    window = _window(events)
    if not window:
        return []
    told = []
    for row in never_called(catalog, called):
        server, tools, every, tokens = row.server, row.tools, row.of, row.tokens
        if tools == every:
            told.append(
                f"No tool of `{server}` was called {window}: {tokens:,} tokens. If you do not need it, set "
                '"disabled": true in the server file.'
            )
        elif tools > 1:
            told.append(f"{tools:,} of the {every:,} tools of `{server}` were not called {window}: {tokens:,} tokens.")
    return told[:4]


def _window(events: Sequence[Event]) -> str:
    """The time that the events cover, in words; nothing where it is too short to judge by."""
    uses = sum(event.kind in (EventKind.FIND, EventKind.CALL) for event in events)
    days = (max(event.at for event in events) - min(event.at for event in events)) / _DAY if events else 0.0
    if days < ENOUGH_DAYS or uses < ENOUGH_USES:
        return ""
    return f"in {days:.0f} days with {uses:,} searches and calls"


def _pins(conversations: Collection[Sequence[Event]], catalog: Collection[Weight]) -> list[str]:
    """Tools that most conversations use need not be searched for each time."""
    wanted = Counter(
        key for own in conversations for key in {tool_key(e) for e in own if e.kind is EventKind.CALL and e.tool}
    )
    known = {weight.key for weight in catalog}
    most = sorted(wanted.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    often = [key for key, times in most if times >= _OFTEN and times * 2 > len(conversations) and key in known]
    if not often:
        return []
    names = ",".join(tool for _, tool in often)
    return [f"Most conversations call {', '.join(f'`{tool}`' for _, tool in often)}: register them directly "
            f"with --profile minimal --pinned-tools {names}."]  # fmt: skip


def _troubles(events: Iterable[Event]) -> list[str]:
    told = []
    for (server, tool), own in grouped((e for e in events if e.kind is EventKind.CALL and e.tool), tool_key):
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
    every = total(catalog)
    if not every:
        return []
    servers = Counter({server: total(own) for server, own in by_server(catalog).items()})
    told = []
    server, tokens = servers.most_common(1)[0]
    if len(servers) > 1 and tokens * 3 > every:
        told.append(f"`{server}` alone has {tokens / every * 100:.0f} % of all tokens of definitions.")
    heaviest = sorted(catalog, key=lambda weight: -weight.tokens)[: max(1, len(catalog) // 20)]
    share = f"{total(heaviest) / every * 100:.0f} % of all tokens"
    first = f"`{heaviest[0].tool}` of `{heaviest[0].server}`"
    if len(heaviest) > 1:
        told.append(
            f"The heaviest {len(heaviest):,} of {len(catalog):,} tools have {share}: "
            f"{first} alone {heaviest[0].tokens:,}."
        )
    elif len(catalog) >= 20:
        told.append(f"The heaviest of {len(catalog):,} tools, {first}, has {share}: {heaviest[0].tokens:,}.")
    return told
