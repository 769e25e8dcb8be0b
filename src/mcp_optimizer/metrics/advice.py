"""Sentences for reports and pages: what is broken now, whether the gateway paid off, and what a user can do.

Pure: from the catalog and the events of its use. Problems come first, because a server that does not run saves nothing.
An increase in cost is never shown as a saving: `is_saving` decides the word and the colour.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.savings import Savings
from mcp_optimizer.metrics.weights import Weight, by_server, never_called, total
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

_Key = TypeVar("_Key", EventKind, str, ToolKey)


def grouped(events: Iterable[Event], key: Callable[[Event], _Key]) -> list[tuple[_Key, list[Event]]]:
    """Events by a key, largest group first; groups of equal size in the order of their keys, so the order is stable."""
    groups: dict[_Key, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def tool_key(event: Event) -> ToolKey:
    return (event.server, event.tool)


_MANY_SEARCHES = 3
"""Searches per call from which the cost lies in searching."""

_ATTEMPTS = "Failed attempts, and pages that are read later, stay in every later request of a conversation."

_USUAL_REPLY = 400
"""Tokens assumed for a search's reply if none was recorded."""


@dataclass(frozen=True)
class SavingsVerdict:
    """The gateway's effect on the tokens that models read."""

    is_saving: bool
    sentence: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListingCosts:
    """The cost of listing all tools, and of searching them instead."""

    tools: int
    baseline: int
    own_tokens: int
    reply: int

    @classmethod
    def of(cls, tools: int, baseline: int, own_tokens: int, events: Sequence[Event]) -> ListingCosts:
        finds = [event.tokens for event in events if event.kind is EventKind.FIND]
        return cls(tools, baseline, own_tokens, sum(finds) // len(finds) if finds else _USUAL_REPLY)

    @property
    def is_cheaper(self) -> bool:
        """Whether a prompt with all tools is smaller than one with our own tools and the reply to a single search."""
        return 0 < self.baseline <= self.own_tokens + self.reply

    @property
    def advice(self) -> str:
        return (
            f"Listing all {counted(self.tools, 'tool')} costs {self.baseline:,} tokens, and searching them "
            f"{self.own_tokens + self.reply:,} (our own tools {self.own_tokens:,}, a reply about {self.reply:,}): "
            "register them directly with --profile full, or pass them through with --mode transparent. That saves "
            f"{self.own_tokens + self.reply - self.baseline:,} tokens and a request in each conversation."
        )


def verdict(
    savings: Savings, events: Sequence[Event], listing: ListingCosts, *, only_results: bool = False
) -> SavingsVerdict:
    """The verdict on these conversations. `only_results`: definitions count in none of them."""
    before, after = savings.without.tokens, savings.with_us.tokens
    if not savings.sessions:
        return SavingsVerdict(True, "Nothing to compare yet: no conversation has searched or called.")
    if after <= before:
        percent = Reduction.of(before, after).percent
        against = "of results" if only_results else "against listing all tools in every prompt"
        return SavingsVerdict(True, f"Saved {before - after:,} tokens ({percent:.1f} %) {against}.")
    if only_results:
        return SavingsVerdict(False, f"Cost {after - before:,} tokens more than the results alone.", (_ATTEMPTS,))
    return SavingsVerdict(
        False, f"Cost {after - before:,} tokens more than listing all tools would have.", tuple(_why(events, listing))
    )


def _why(events: Sequence[Event], listing: ListingCosts) -> list[str]:
    finds = sum(event.kind in (EventKind.FIND, EventKind.LIST) for event in events)
    calls = sum(event.kind is EventKind.CALL for event in events)
    found = []
    if finds >= _MANY_SEARCHES * max(calls, 1):
        led = f"led to {counted(calls, 'call')}" if calls else "led to no call"
        found.append(
            f"{counted(finds, 'search', 'searches')} {led}: a search costs its reply in every later request, and saves "
            "only where a call follows."
        )
    if listing.is_cheaper:
        found.append(
            f"The catalog is small: all its definitions cost {listing.baseline:,} tokens, our own tools and one reply "
            f"{listing.own_tokens + listing.reply:,}."
        )
    return found or ["Replies of searches and failed attempts stay in every later request of a conversation."]


_MOST_NAMED = 5
_LONGEST_REASON = 200


def troubles(snapshot: Snapshot) -> tuple[str, ...]:
    """One sentence per server that needs attention, for the first few of each kind."""
    states = sorted(snapshot.states.values(), key=lambda state: state.name)
    failed = [
        f"`{state.name}` does not run{_because(state.reason)}. Look at it with "
        f"`mcp-optimizer doctor {shlex.quote(state.name)}`."
        for state in states
        if state.status is ServerStatus.FAILED
    ]
    logins = [
        f"`{state.name}` wants a login: `mcp-optimizer login {shlex.quote(state.name)}`."
        for state in states
        if state.status is ServerStatus.LOGIN_NEEDED
    ]
    waiting = Counter(tool.server for tool in snapshot.held.values())
    held = [
        f"{counted(number, 'tool')} of `{server}` {'waits' if number == 1 else 'wait'} for your approval: "
        f"`mcp-optimizer trust diff {shlex.quote(server)}` shows what changed."
        for server, number in sorted(waiting.items())
    ]
    held += [
        f"The instructions of `{server}` wait for your approval: `mcp-optimizer trust diff {shlex.quote(server)}` "
        "shows what changed."
        for server in sorted(snapshot.unapproved.instructions)
        if server not in waiting and not snapshot.states[server].instructions
    ]
    return tuple(
        line
        for told, kind in ((failed, "that do not run"), (logins, "that want a login"), (held, "with changes that wait"))
        for line in _first(told, kind)
    )


def _because(reason: str) -> str:
    """A server's own words, cut and on one line."""
    said = in_a_line(reason).replace("`", "'").strip().rstrip(".")
    return f": {said if len(said) <= _LONGEST_REASON else said[:_LONGEST_REASON] + '…'}" if said else ""


def _first(told: list[str], kind: str) -> list[str]:
    more = len(told) - _MOST_NAMED
    return [*told[:_MOST_NAMED], f"And {counted(more, 'more server')} {kind}."] if more > 0 else told


_OFTEN = 5
"""Occurrences from which something counts as a habit."""

ENOUGH_DAYS = 3
ENOUGH_USES = 20
"""Days of history, and searches and calls in it, before an uncalled tool counts as unused."""

_DAY = 86_400
_LARGE_RESULT = 5_000
_LIMIT = 2_000
"""Tokens of a result from which on the rest is read only if it is needed."""

_FAILS_OFTEN = 0.2
_MOST_ADVICE = 8
_MOST_TWINS = 3


def advice(
    conversations: Collection[Sequence[Event]],
    catalog: Sequence[Weight],
    found: Mapping[ToolKey, int],
    called: Mapping[ToolKey, int],
    listing: ListingCosts | None = None,
) -> tuple[str, ...]:
    """What a user can do, most important first. Says nothing about things that were used too little to judge.

    `listing`: the cost of listing all tools, and of searching them instead.
    """
    small = [listing.advice] if listing is not None and listing.is_cheaper else []
    small += _twins(catalog)
    if not called:
        return (*small, *_advice_on_weights(catalog))
    told = [
        *small,
        *_unused(catalog, called, [event for own in conversations for event in own]),
        *_pins(conversations, catalog, listing.reply if listing is not None else _USUAL_REPLY),
        *_troubles(event for own in conversations for event in own),
        *_overlooked(catalog, found, called),
    ]
    return tuple(told[:_MOST_ADVICE])


def _twins(catalog: Sequence[Weight]) -> list[str]:
    """Servers with the same tools, most likely one server that two clients' files named."""
    same: dict[frozenset[tuple[str, int]], list[str]] = defaultdict(list)
    own = by_server(catalog)
    for server in sorted(own):
        same[frozenset((weight.tool, weight.tokens) for weight in own[server])].append(server)
    return [
        f"`{first}` and `{other}` have the same {counted(len(own[other]), 'tool')}. If one is enough, "
        f"`mcp-optimizer disable {shlex.quote(other)}` saves its definitions: {total(own[other]):,} tokens."
        for first, *others in same.values()
        for other in others
    ][:_MOST_TWINS]


def _unused(catalog: Sequence[Weight], called: Mapping[ToolKey, int], events: Sequence[Event]) -> list[str]:
    """Only after some days of use, because a tool that was not needed today may be needed tomorrow."""
    window = _window(events)
    if not window:
        return []
    told = []
    for row in never_called(catalog, called):
        server, tools, every, tokens = row.server, row.tools, row.of, row.tokens
        if tools == every:
            told.append(
                f"No tool of `{server}` was called {window}. If you do not need it, "
                f"`mcp-optimizer disable {shlex.quote(server)}` saves its definitions: {tokens:,} tokens."
            )
        elif tools > 1:
            told.append(
                f"{tools:,} of the {every:,} tools of `{server}` were not called {window}: {tokens:,} tokens. "
                f"{_turning_off(server)}"
            )
    return told[:4]


def _window(events: Sequence[Event]) -> str:
    """The period that the events cover, in words; "" if it is too short to judge by."""
    uses = sum(event.kind in (EventKind.FIND, EventKind.CALL) for event in events)
    days = (max(event.at for event in events) - min(event.at for event in events)) / _DAY if events else 0.0
    if days < ENOUGH_DAYS or uses < ENOUGH_USES:
        return ""
    return f"in {days:.0f} days with {uses:,} searches and calls"


def _pins(conversations: Collection[Sequence[Event]], catalog: Collection[Weight], reply: int) -> list[str]:
    """Suggests pinning tools that most conversations use, to save the searches for them."""
    wanted = Counter(
        key for own in conversations for key in {tool_key(e) for e in own if e.kind is EventKind.CALL and e.tool}
    )
    known = {weight.key: weight for weight in catalog}
    most = sorted(wanted.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    often = [key for key, times in most if times >= _OFTEN and times * 2 > len(conversations) and key in known]
    if not often:
        return []
    names = ",".join(tool for _, tool in often)
    costs = total([known[key] for key in often])
    return [
        f"Most conversations call {', '.join(f'`{tool}`' for _, tool in often)}: register them directly with "
        f"--profile minimal --pinned-tools {names}. That saves a search, a request of its own whose reply is about "
        f"{reply:,} tokens; their definitions are at most {costs:,}."
    ]


def _troubles(events: Iterable[Event]) -> list[str]:
    told = []
    for (server, tool), own in grouped((e for e in events if e.kind is EventKind.CALL and e.tool), tool_key):
        denied = [event for event in own if event.outcome is Outcome.DENIED]
        failed = [event for event in own if event.outcome not in (Outcome.OK, Outcome.BAD_REQUEST, Outcome.DENIED)]
        wrong = [event for event in own if event.outcome is Outcome.BAD_REQUEST]
        average = sum(event.tokens for event in own) // len(own)
        if _is_often(failed, own):
            told.append(
                f"`{tool}` of `{server}` failed {_share(failed, own)}. Why: "
                f"`mcp-optimizer audit --tool {shlex.quote(tool)}`, and `mcp-optimizer doctor {shlex.quote(server)}`."
            )
        if _is_often(denied, own):
            told.append(
                f"`{tool}` of `{server}` was denied {_share(denied, own)}. Which rule or right decides: "
                f"`mcp-optimizer policy test {shlex.quote(tool)} --server {shlex.quote(server)} --caller NAME`."
            )
        if _is_often(wrong, own):
            told.append(
                f"`{tool}` of `{server}` got wrong arguments {_share(wrong, own)}. What models are "
                f"shown of it: `{_show(server, tool)}`."
            )
        if average >= _LARGE_RESULT:
            saved = sum(max(0, event.tokens - _LIMIT) for event in own)
            told.append(
                f"Results of `{tool}` of `{server}` average {average:,} tokens. A limit for it alone, max_tokens = "
                f'{_LIMIT} in [tool_results."{tool}"] of the settings file, would have saved up to {saved:,} tokens. '
                f"What models see of it: `{_show(server, tool)}`."
            )
    return told


def _is_often(some: Sequence[Event], own: Sequence[Event]) -> bool:
    return len(own) >= _OFTEN and len(some) >= len(own) * _FAILS_OFTEN


def _share(some: Sequence[Event], own: Sequence[Event]) -> str:
    """How often, and what models read of it, which they would not have without."""
    tokens = sum(event.tokens for event in some)
    return f"{len(some)} of {len(own)} times" + (f", for {tokens:,} tokens" if tokens else "")


def _show(server: str, tool: str) -> str:
    return f"mcp-optimizer show {shlex.quote(f'{server}/{tool}')}"


def _overlooked(catalog: Sequence[Weight], found: Mapping[ToolKey, int], called: Mapping[ToolKey, int]) -> list[str]:
    known = {weight.key for weight in catalog}
    missed = [(times, key) for key, times in found.items() if times >= _OFTEN and not called.get(key) and key in known]
    return [
        f"`{tool}` of `{server}` was found {times} times and never called: does its description promise too much? "
        f"What models are shown of it: `{_show(server, tool)}`."
        for times, (server, tool) in sorted(missed, reverse=True)[:2]
    ]


def _turning_off(server: str, tool: str = "TOOL") -> str:
    """How to do without tools that nobody needs."""
    name = f"{server}/{tool}"
    off = shlex.quote(name) if tool != "TOOL" else name
    return f"`mcp-optimizer tools {shlex.quote(server)}` lists its tools; `mcp-optimizer disable {off}` turns one off."


def _advice_on_weights(catalog: Sequence[Weight]) -> list[str]:
    """Advice based on size alone, because nothing has been called yet."""
    every = total(catalog)
    if not every:
        return []
    servers = Counter({server: total(own) for server, own in by_server(catalog).items()})
    told = []
    server, tokens = servers.most_common(1)[0]
    if len(servers) > 1 and tokens * 3 > every:
        share = f"{tokens / every * 100:.0f} % of all tokens of definitions"
        told.append(f"`{server}` alone has {share}: {tokens:,}. {_turning_off(server)}")
    heaviest = sorted(catalog, key=lambda weight: -weight.tokens)[: max(1, len(catalog) // 20)]
    share = f"{total(heaviest) / every * 100:.0f} % of all tokens"
    first = f"`{heaviest[0].tool}` of `{heaviest[0].server}`"
    if len(heaviest) > 1:
        told.append(
            f"The heaviest {len(heaviest):,} of {len(catalog):,} tools have {share}: "
            f"{first} alone {heaviest[0].tokens:,}. {_turning_off(heaviest[0].server, heaviest[0].tool)}"
        )
    elif len(catalog) >= 20:
        told.append(f"The heaviest of {len(catalog):,} tools, {first}, has {share}: {heaviest[0].tokens:,}.")
    return told
