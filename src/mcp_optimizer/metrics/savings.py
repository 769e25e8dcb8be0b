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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.metrics.reduction import Reduction

SILENCE = 1_800.0
"""Seconds without an event after which a new conversation is assumed."""


@dataclass(frozen=True)
class Assumptions:
    """What is not known from the events, and stated beside every number."""

    requests_per_session: int | None = None
    """Model requests in a conversation; None: one for each call, and one more. Never less than that."""
    own_tokens: int = 0
    """Tokens of our own tools, for what was asked before a `tools/list` was recorded."""


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

    def __sub__(self, other: Reading) -> Reading:
        return Reading(self.requests - other.requests, self.fresh - other.fresh, self.repeated - other.repeated)

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

    def __sub__(self, other: Savings) -> Savings:
        return Savings(self.sessions - other.sessions, self.with_us - other.with_us, self.without - other.without)

    def cost(self, prices: Prices, *, cached: bool) -> Reduction:
        """What was paid, against what would have been: in money, or in full-price tokens where prices are plain."""
        before, after = self.without.cost(prices, cached=cached), self.with_us.cost(prices, cached=cached)
        return Reduction.of(before, after).rounded(6 if prices.model else 0)


class Conversation:
    """One conversation, told event by event: the one arithmetic, for reports and for what is counted as it happens.

    One without a single call has cost nothing yet: nobody knows that a model was asked.
    """

    def __init__(self, assumptions: Assumptions, menu: int | None = None) -> None:
        """`menu`: tokens of the list that the client loaded before, if it is known to have one."""
        self._assumptions = assumptions
        self.menu = menu
        self._ours = _Side()
        self._theirs = _Side()
        self._baseline = 0
        self._last_at: float | None = None

    def is_over(self, event: Event) -> bool:
        """Whether so much silence lies before this event that it begins another conversation."""
        return self._last_at is not None and is_silence(self._last_at, event.at)

    def following(self) -> Conversation:
        """The next one of the same client: the list that it loaded before the silence is still what it sends."""
        return Conversation(self._assumptions, self.menu)

    def add(self, event: Event) -> None:
        self._last_at = event.at
        if event.kind is EventKind.LOAD:
            self.menu = event.tokens
            return
        self._baseline = event.baseline_tokens
        self._ours.turn(self._menu, event.tokens)
        if event.kind is EventKind.CALL and event.outcome is not Outcome.BAD_REQUEST:
            self._theirs.turn(event.baseline_tokens, event.full_tokens)

    @property
    def _menu(self) -> int:
        return self._assumptions.own_tokens if self.menu is None else self.menu

    @property
    def savings(self) -> Savings:
        """As it stands now."""
        if not self._ours.turns:
            return Savings()
        further = max(1, (self._assumptions.requests_per_session or 0) - self._ours.turns)
        return Savings(1, self._ours.read(self._menu, further), self._theirs.read(self._baseline, further))


class _Side:
    """What a model reads in a conversation: requests one after the other, each with the list and all replies so far."""

    def __init__(self) -> None:
        self.turns = 0
        self._fresh = self._repeated = self._conversation = self._held = 0
        self._before: int | None = None

    def turn(self, definitions: int, reply: int) -> None:
        """A request with this list was answered with that much."""
        size, known = self._next(definitions)
        self._repeated += known
        self._fresh += size - known
        self._conversation += reply
        self._before, self._held = definitions, size
        self.turns += 1

    def read(self, last_list: int, further: int) -> Reading:
        """All of it, with `further` requests at the end: the first reads the last reply, the others the same again."""
        size, known = self._next(last_list)
        repeated = self._repeated + known + size * (further - 1)
        return Reading(self.turns + further, self._fresh + size - known, repeated)

    def _next(self, definitions: int) -> tuple[int, int]:
        """The size of the next request, and how much of it the last one held."""
        return definitions + self._conversation, self._held if definitions == self._before else 0


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
            if at < len(found) and not is_silence(found[at - 1].at, found[at].at):
                continue
            # The list that a client loaded before the silence is still what it sends.
            yield [*([menu] if menu is not None else []), *found[begin:at]]
            menu = next((event for event in reversed(found[:at]) if event.kind is EventKind.LOAD), None)
            begin = at


def is_silence(before: float, at: float) -> bool:
    """Whether what is said at this time belongs to another conversation than what was said before."""
    return at - before > SILENCE


def session_savings(events: Iterable[Event], assumptions: Assumptions) -> Savings:
    """One conversation."""
    conversation = Conversation(assumptions)
    for event in events:
        conversation.add(event)
    return conversation.savings
