"""Computes savings: everything a model read with this gateway, against what it would have read without it. Pure.

Each conversation is replayed from its events, once as it happened and once as it would have happened:

- With the gateway, every model request carries our `tools/list` and all replies so far: searches, lists and results.
- Without it, every model request carries the definitions of all tools of running servers, as clients send them (name,
  description and input schema), and all results so far, uncut; but there are no searches, so there are fewer requests,
  and no failed attempts at calling.
- A client that loads tools on demand itself would have sent few definitions, and searched as well; of an unknown client
  it is not known whether it would have sent them. For both, definitions and searches count on neither side, and only
  results are compared.

The figure is meant to be one that the client's own log of requests would confirm, or exceed:

- No request is larger than the model's window. A conversation that would have outgrown it was compacted: only its
  newest result is in the next request.
- No result is larger than what the client gives its model of one, if its server sends it.
- A result is in later requests only where the client tells its conversations apart. Otherwise it counts once.
- A search of ours is a request that would not have been, and reads again what the client puts into every one.
- Calls that overlap were made by one model request. Each other call is one, and one more request reads the last reply;
  that is the minimum possible number.

The user's prompts and the model's answers are the same in both cases and are left out of both.

Both cases are priced in two ways: every token at the full price each time it is read, and with a provider's prompt
cache, where tokens of the previous request are read at a fraction of the price. A `tools/list` that changes during a
conversation makes the provider read everything anew; that counts in both.

`Conversations` decides where a conversation ends, and `Conversation` computes its savings. Reports and pages process a
whole history (`conversations`), Prometheus adds up events as they happen (`RunningSavings`). A database may hold events
of several server files, and of servers that a file no longer has; `own_history` removes these before anything is added
up.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from mcp_optimizer.domain.client_habits import LONGEST_RESULT, ResultRoom
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.metrics.reduction import Reduction

_CALLING = frozenset({EventKind.CALL, EventKind.SCRIPT})
"""Kinds of events that would have happened without the gateway too. The calls of a script count as one, the minimum
that would have been needed.
"""

_OUR_FAILURES = frozenset({Outcome.BAD_REQUEST, Outcome.DENIED})
"""Outcomes of calls that would not have happened without the gateway."""

SHARED = "~"
"""The first character of the label of a session in which a client may have several conversations at a time."""

_SEARCHING = frozenset({EventKind.FIND, EventKind.LIST})

_MOST_CHANGED = 1_000
"""Conversations that may wait before their gains are added up."""

WINDOW = 200_000
"""Tokens that a model reads at most in one request, if the settings do not say it."""

_SAME_REQUEST = 0.1
"""Seconds after a reply in which no model has read it and answered: a call that begins then was asked for before."""

SILENCE = 1_800.0
"""Seconds without an event after which a new conversation is assumed."""


def no_client(_name: str) -> bool:
    """Of no client."""
    return False


def no_prompt(_name: str) -> int:
    """Of a client whose own prompt is not known."""
    return 0


def any_room(_name: str) -> ResultRoom:
    """Of a client whose own limits are not known."""
    return ResultRoom()


def every_client(_name: str) -> bool:
    """Of every client."""
    return True


@dataclass(frozen=True)
class Assumptions:
    """Facts that the events do not contain, printed next to every number."""

    requests_per_session: int | None = None
    """Model requests in a conversation; None: one per call and one more, which is also the minimum."""
    own_tokens: int = 0
    """Tokens of our own tools, for requests before a `tools/list` was recorded."""
    loads_on_demand: Callable[[str], bool] = no_client
    """Whether a client, by its name, keeps tools out of its prompts until a search of its own finds them."""
    sends_definitions: Callable[[str], bool] = every_client
    """Whether a client is known to send all definitions with every request."""
    tells_conversations_apart: Callable[[str], bool] = every_client
    """Whether what a client asks for in one session, or under one name of a conversation, is one conversation."""
    window: int = WINDOW
    own_prompt: Callable[[str], int] = no_prompt
    """Tokens that a client, by its name, puts into every request whatever its servers are."""
    room: Callable[[str], ResultRoom] = any_room
    """How much of a result a client, by its name, gives its model."""


@dataclass(frozen=True)
class Prices:
    """What a model's input costs, in money per million tokens."""

    model: str
    currency: str
    input: float
    cache_read: float
    cache_write: float


PLAIN_PRICES = Prices(model="", currency="", input=1.0, cache_read=0.1, cache_write=1.25)
"""Without a model: the usual ratio of the prices for cached reads and writes to the full price."""


@dataclass(frozen=True)
class ModelInput:
    """The tokens that a model read as input."""

    requests: int = 0
    fresh: int = 0
    """Tokens that are new to the provider's cache."""
    repeated: int = 0
    """Tokens that the previous request already contained."""

    @property
    def tokens(self) -> int:
        return self.fresh + self.repeated

    def __add__(self, other: ModelInput) -> ModelInput:
        return ModelInput(self.requests + other.requests, self.fresh + other.fresh, self.repeated + other.repeated)

    def __sub__(self, other: ModelInput) -> ModelInput:
        return ModelInput(self.requests - other.requests, self.fresh - other.fresh, self.repeated - other.repeated)

    def cost(self, prices: Prices, *, cached: bool) -> float:
        """Money, or full-price tokens with plain prices."""
        unit = 1e6 if prices.model else 1.0
        if not cached:
            return self.tokens * prices.input / unit
        return (self.fresh * prices.cache_write + self.repeated * prices.cache_read) / unit


@dataclass(frozen=True)
class Savings:
    """The input of several conversations, with the gateway and without it."""

    sessions: int = 0
    with_us: ModelInput = ModelInput()
    without: ModelInput = ModelInput()

    def __add__(self, other: Savings) -> Savings:
        return Savings(self.sessions + other.sessions, self.with_us + other.with_us, self.without + other.without)

    def __sub__(self, other: Savings) -> Savings:
        return Savings(self.sessions - other.sessions, self.with_us - other.with_us, self.without - other.without)

    def cost(self, prices: Prices, *, cached: bool) -> Reduction:
        """The actual cost against the cost without the gateway: in money, or in full-price tokens with plain prices."""
        before, after = self.without.cost(prices, cached=cached), self.with_us.cost(prices, cached=cached)
        return Reduction.of(before, after).rounded(6 if prices.model else 0)


class Conversation:
    """Replays one conversation event by event: what a model read in it with the gateway, and what without.

    A conversation without a call has cost nothing yet, because it is not known whether a model was asked.
    """

    def __init__(self, assumptions: Assumptions, menu: int | None = None) -> None:
        """`menu`: tokens of the list that the client loaded before, if known."""
        self._assumptions = assumptions
        self._menu = assumptions.own_tokens if menu is None else menu
        self._ours = _Side(assumptions.window)
        self._theirs = _Side(assumptions.window)
        self._baseline = 0
        self._has_definitions = True
        self._prompt = 0
        self._last_at = math.inf
        self._told = Savings()

    def is_over(self, at: float) -> bool:
        """Whether the silence before this time is so long that the next event begins another conversation."""
        return at - self._last_at > SILENCE

    def following(self) -> Conversation:
        """The next conversation of the same client, which still sends the list that it loaded before the silence."""
        return Conversation(self._assumptions, self._menu)

    def add(self, event: Event) -> None:
        self._last_at = event.at
        assumed = self._assumptions
        self._has_definitions = assumed.sends_definitions(event.client) and not assumed.loads_on_demand(event.client)
        if event.kind is EventKind.LOAD:
            self._menu = event.tokens
            return
        if not self._has_definitions and event.kind in _SEARCHING:
            return
        # The same in each request, but our searches make requests that would not have been.
        self._prompt = assumed.own_prompt(event.client) if self._has_definitions else 0
        keeps = not event.session.startswith(SHARED) and assumed.tells_conversations_apart(event.client)
        self._baseline = event.baseline_tokens + self._prompt if self._has_definitions else 0
        began = event.at - event.milliseconds / 1_000
        self._ours.answer(self._listed, min(event.tokens, LONGEST_RESULT), began, event.at, keeps=keeps)
        if event.kind in _CALLING and event.outcome not in _OUR_FAILURES:
            shown = assumed.room(event.client).shown(event.full_tokens)
            self._theirs.answer(self._baseline, shown, began, event.at, keeps=keeps)

    @property
    def _listed(self) -> int:
        """The tokens of our list in each request."""
        return self._menu + self._prompt if self._has_definitions else 0

    def gained(self) -> Savings:
        """The change of the savings since the last call of this method."""
        before, self._told = self._told, self.savings
        return self._told - before

    @property
    def savings(self) -> Savings:
        """The savings so far."""
        if not self._ours.turns:
            return Savings()
        further = max(1, (self._assumptions.requests_per_session or 0) - self._ours.turns)
        return Savings(1, self._ours.read(self._listed, further), self._theirs.read(self._baseline, further))


class _Side:
    """One side of the comparison: successive model requests, each with the list and the replies before it."""

    def __init__(self, window: int) -> None:
        self.turns = 0
        self._window = window
        self._fresh = self._repeated = self._conversation = self._newest = 0
        self._held = 0
        self._before: int | None = None
        """The size of the last request, and of its list."""
        self._ended_at = -math.inf

    def answer(self, definitions: int, reply: int, began: float, ended: float, *, keeps: bool) -> None:
        """Adds a reply of this size, to a request with this list, unless the request before asked for it too. Without
        `keeps`, later requests do not contain it again.
        """
        if self.turns and began < self._ended_at + _SAME_REQUEST:
            self._newest += reply
            self._conversation += reply
        else:
            size, known = self._next(definitions)
            self._repeated += known
            self._fresh += size - known
            self._conversation = (self._kept(definitions) if keeps else 0) + reply
            self._newest = reply
            self._before, self._held = definitions, size
            self.turns += 1
        self._ended_at = max(self._ended_at, ended)

    def read(self, last_list: int, further: int) -> ModelInput:
        """The total, with `further` requests at the end: the first one reads the last reply, and the others repeat all
        of the previous request.
        """
        size, known = self._next(last_list)
        repeated = self._repeated + known + size * (further - 1)
        return ModelInput(self.turns + further, self._fresh + size - known, repeated)

    def _next(self, definitions: int) -> tuple[int, int]:
        """The size of the next request, and how much of it the previous one contained."""
        size = min(definitions + self._kept(definitions), self._window)
        is_same = definitions == self._before and self._kept(definitions) == self._conversation
        return size, min(self._held, size) if is_same else 0

    def _kept(self, definitions: int) -> int:
        """What the next request contains of the conversation: only the newest replies once it outgrew the window."""
        return self._conversation if definitions + self._conversation <= self._window else self._newest


class Conversations:
    """Assigns events to conversations; events must arrive in the order in which they happened."""

    def __init__(self, assumptions: Callable[[], Assumptions], most: int | None = None) -> None:
        """`most`: clients that are remembered; None for no limit."""
        self._assumptions = assumptions
        self._most = most
        self._current: OrderedDict[str, Conversation] = OrderedDict()

    def of(self, event: Event) -> Conversation:
        """The conversation that an event belongs to: its client's current one, or a new one."""
        session, current = event.session, self._current
        conversation = current.get(session)
        if conversation is None:
            conversation = current[session] = Conversation(self._assumptions())
            if self._most is not None and len(current) > self._most:
                current.popitem(last=False)
            return conversation
        if conversation.is_over(event.at):
            conversation = current[session] = conversation.following()
        # The client with the latest event comes last: the one that has been silent longest is forgotten first.
        current.move_to_end(session)
        return conversation


class RunningSavings:
    """The savings of all conversations up to now.

    Receives every event but is seldom read, so gains are added up only on reading.
    """

    def __init__(self, assumptions: Callable[[], Assumptions], most: int | None = None) -> None:
        self._conversations = Conversations(assumptions, most)
        self._total = Savings()
        self._changed: dict[Conversation, None] = {}
        self._highest = (0, 0)

    def take(self, event: Event) -> None:
        conversation = self._conversations.of(event)
        conversation.add(event)
        self._changed[conversation] = None
        if len(self._changed) > _MOST_CHANGED:
            # Includes conversations that are forgotten by now.
            self._settle()

    @property
    def total(self) -> Savings:
        """The result that `savings` gives for the same events."""
        self._settle()
        return self._total

    @property
    def highest(self) -> tuple[int, int]:
        """The highest totals returned so far, with the gateway and without: a total may fall a little when a list
        becomes shorter, but a counter may not.
        """
        total, (with_us, without) = self.total, self._highest
        self._highest = max(with_us, total.with_us.tokens), max(without, total.without.tokens)
        return self._highest

    def _settle(self) -> None:
        changed, self._changed = self._changed, {}
        self._total = sum((conversation.gained() for conversation in changed), self._total)


def conversations(events: Iterable[Event], assumptions: Assumptions) -> dict[Conversation, list[Event]]:
    """All conversations of a history, each with its events in order."""
    which = Conversations(lambda: assumptions)
    found: dict[Conversation, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        conversation = which.of(event)
        conversation.add(event)
        found[conversation].append(event)
    return found


def together(found: Iterable[Conversation]) -> Savings:
    """The savings of some conversations together."""
    return sum((conversation.savings for conversation in found), Savings())


def savings(events: Iterable[Event], assumptions: Assumptions = Assumptions()) -> Savings:  # noqa: B008 - frozen
    """The savings of all conversations in a history."""
    return together(conversations(events, assumptions))


@dataclass(frozen=True)
class OwnHistory:
    """The events about the current servers, and how many were about others."""

    events: list[Event]
    others: int


def own_history(events: Iterable[Event], configuration: str, servers: Collection[str]) -> OwnHistory:
    """The conversations of a configuration that use only servers it still has.

    Keeps or drops whole conversations, because a part of one does not show what it cost. Conversations from before
    configurations were recorded count only if they name current servers.
    """
    own: list[Event] = []
    others = 0
    for told in _by_configuration(events):
        named = {server for event in told for server in _servers_named(event)}
        is_ours = told[0].configuration == configuration or (not told[0].configuration and bool(named))
        if is_ours and named <= set(servers):
            own += told
        else:
            others += len(told)
    return OwnHistory(sorted(own, key=lambda event: event.at), others)


def _by_configuration(events: Iterable[Event]) -> Iterator[list[Event]]:
    open_ones: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(events, key=lambda event: event.at):
        key = (event.configuration, event.session)
        told = open_ones.get(key)
        if told is not None and event.at - told[-1].at > SILENCE:
            yield told
            told = None
        if told is None:
            told = open_ones[key] = []
        told.append(event)
    yield from open_ones.values()


def _servers_named(event: Event) -> Iterator[str]:
    if event.server:
        yield event.server
    yield from (server for server, _ in event.found)


_SAMPLE = 1_000
"""Tokens used to find a price: few, so the first of tiered prices applies."""


def prices_of(model: str) -> Prices:
    """The prices of a model by its name, or `provider:model` if several providers sell it."""
    # Loading takes half a second, so only on request.
    from genai_prices import Usage, calc_price

    provider, separator, name = model.partition(":")
    usages = (
        Usage(input_tokens=_SAMPLE),
        Usage(input_tokens=_SAMPLE, cache_read_tokens=_SAMPLE),
        Usage(input_tokens=_SAMPLE, cache_write_tokens=_SAMPLE),
    )
    try:
        plain, read, write = (
            calc_price(usage, name if separator else model, provider_id=provider if separator else None)
            for usage in usages
        )
    except LookupError as error:
        raise ConfigurationError(
            f"No known price for the model {model!r}. Use its provider's name for it, such as claude-sonnet-4-5, "
            "gpt-5 or google:gemini-2.5-pro."
        ) from error
    scale = 1_000_000 / _SAMPLE
    full = float(plain.input_price) * scale
    return Prices(
        model=plain.model.id,
        currency="USD",
        input=full,
        cache_read=float(read.input_price) * scale,
        # Providers that cache automatically charge nothing extra for new tokens.
        cache_write=float(write.input_price) * scale or full,
    )
