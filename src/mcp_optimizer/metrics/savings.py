"""What was saved, honestly: all that a model had to read with this gateway, and what it would have read without. Pure.

A conversation is told again from its events, once as it was and once as it would have been:

- With us, every model request carries our `tools/list` and all replies so far: searches, lists and results.
- Without us, every model request carries all definitions of the servers that were running, and all results so far,
  uncut; but there are no searches, so there are fewer requests, and no failed tries at calling.

Each call is one model request, and one more reads the last reply; that is the least there can have been. What the
user wrote and the model answered is the same in both, and left out of both.

Both are then priced in two ways: every token at the full price each time it is read, and with a provider's prompt
cache, where what the last request already held is read at a fraction of the price. A `tools/list` that changes in
the middle of a conversation makes the provider read everything anew; that counts in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.db.events import Event, EventKind, Outcome

SILENCE = 1_800.0
"""Seconds without an event after which a new conversation is assumed."""


@dataclass(frozen=True)
class Assumptions:
    """What is not known from the events, and stated beside every number."""

    requests_per_session: int | None = None
    """Model requests in a conversation; None: one for each call, and one more. Never less than that."""
    own_tokens: int = 0
    """Tokens of our own tools, for conversations whose `tools/list` was not recorded."""


@dataclass(frozen=True)
class Prices:
    """What a model's input costs, in money for a million tokens."""

    model: str
    currency: str
    input: float
    cache_read: float
    cache_write: float


PLAIN_PRICES = Prices(model="", currency="", input=1.0, cache_read=0.1, cache_write=1.25)
"""Without a named model: how the prices of a cached read and write relate to the full one at most providers."""


@dataclass(frozen=True)
class Reading:
    """What was read as a model's input."""

    requests: int = 0
    fresh: int = 0
    """Tokens that no earlier request had brought to the provider's cache."""
    repeated: int = 0
    """Tokens that the request before already held."""

    @property
    def tokens(self) -> int:
        return self.fresh + self.repeated

    def __add__(self, other: Reading) -> Reading:
        return Reading(self.requests + other.requests, self.fresh + other.fresh, self.repeated + other.repeated)

    def cost(self, prices: Prices, *, cached: bool) -> float:
        """Money, or full-price tokens where the prices are plain."""
        unit = 1e6 if prices.model else 1.0
        if not cached:
            return self.tokens * prices.input / unit
        return (self.fresh * prices.cache_write + self.repeated * prices.cache_read) / unit


@dataclass(frozen=True)
class Savings:
    """A number of conversations, as they were and as they would have been."""

    sessions: int = 0
    with_us: Reading = Reading()
    without: Reading = Reading()

    def __add__(self, other: Savings) -> Savings:
        return Savings(self.sessions + other.sessions, self.with_us + other.with_us, self.without + other.without)

    def as_values(self, prices: Prices = PLAIN_PRICES) -> dict[str, Any]:
        """For programs and pages: both ways to pay, each with what it costs with us and without."""
        ways = {}
        for way, cached in (("uncached", False), ("cached", True)):
            before, after = self.without.cost(prices, cached=cached), self.with_us.cost(prices, cached=cached)
            percent = round((before - after) / before * 100, 2) if before else 0.0
            digits = 6 if prices.model else 0
            ways[way] = {
                "without": round(before, digits),
                "with": round(after, digits),
                "saved": round(before - after, digits),
                "percent": percent,
            }
        return {
            "sessions": self.sessions,
            "requests": {"without": self.without.requests, "with": self.with_us.requests},
            "tokens": {
                "without": self.without.tokens,
                "with": self.with_us.tokens,
                "saved": self.without.tokens - self.with_us.tokens,
            },
            **ways,
        }


def savings(events: Iterable[Event], assumptions: Assumptions = Assumptions()) -> Savings:  # noqa: B008 - frozen
    """All conversations together."""
    return sum((session_savings(session, assumptions) for session in sessions(events)), Savings())


def sessions(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The conversations, each with its events in order; a long silence ends one."""
    by_session: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        by_session[event.session].append(event)
    for found in by_session.values():
        begin, menu = 0, None
        for at in range(1, len(found) + 1):
            if at < len(found) and found[at].at - found[at - 1].at <= SILENCE:
                continue
            # The list that a client loaded before the silence is still what it sends.
            yield [*([menu] if menu is not None else []), *found[begin:at]]
            menu = next((event for event in reversed(found[:at]) if event.kind is EventKind.LOAD), None)
            begin = at


def session_savings(events: Sequence[Event], assumptions: Assumptions) -> Savings:
    """One conversation. One without a single call has cost nothing yet: nobody knows that a model was asked."""
    answered = [event for event in events if event.kind is not EventKind.LOAD]
    if not answered:
        return Savings()
    loads = [event for event in events if event.kind is EventKind.LOAD]
    menu = loads[0].tokens if loads else assumptions.own_tokens
    ours: list[tuple[int, int]] = []
    theirs: list[tuple[int, int]] = []
    for event in events:
        if event.kind is EventKind.LOAD:
            menu = event.tokens
            continue
        ours.append((menu, event.tokens))
        if event.kind is EventKind.CALL and event.outcome is not Outcome.BAD_REQUEST:
            theirs.append((event.baseline_tokens, event.full_tokens))
    further = max(1, (assumptions.requests_per_session or 0) - len(ours))
    last_baseline = answered[-1].baseline_tokens
    return Savings(1, _read(ours, menu, further), _read(theirs, last_baseline, further))


def _read(turns: Sequence[tuple[int, int]], last_list: int, further: int) -> Reading:
    """Requests one after the other: each holds the list and all replies so far; the further ones come at the end."""
    fresh = repeated = conversation = held = 0
    before: int | None = None
    for definitions, reply in [*turns, (last_list, 0)]:
        size = definitions + conversation
        known = held if definitions == before else 0
        repeated += known
        fresh += size - known
        conversation += reply
        before, held = definitions, size
    # Whatever comes after that reads the same again.
    repeated += held * (further - 1)
    return Reading(len(turns) + further, fresh, repeated)
