"""Whether the gateway paid off, in a sentence; and why not, where it did not. Pure; shown by reports and pages.

What cost more is never shown as a saving: `is_saving` decides the word and the colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.savings import Savings
from mcp_optimizer.runtime.terminal_text import counted

_MANY_SEARCHES = 3
"""Searches for each call from which searching is what costs."""

_ATTEMPTS = "Failed attempts, and pages that are read later, stay in every later request of a conversation."

_USUAL_REPLY = 400
"""Tokens of a search's reply, where none was recorded."""


@dataclass(frozen=True)
class SavingsVerdict:
    """What the gateway made of the tokens that models read."""

    is_saving: bool
    sentence: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListingCosts:
    """What it costs to list all tools, and what to search them instead."""

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
        """Whether a prompt with all tools is smaller than one with our own and the reply of a single search."""
        return 0 < self.baseline <= self.own_tokens + self.reply

    @property
    def advice(self) -> str:
        return (
            f"Listing all {counted(self.tools, 'tool')} costs {self.baseline:,} tokens, and searching them "
            f"{self.own_tokens + self.reply:,} (our own tools {self.own_tokens:,}, a reply about {self.reply:,}): "
            "register them directly with --profile full, or pass them through with --mode transparent."
        )


def verdict(
    savings: Savings, events: Sequence[Event], listing: ListingCosts, *, only_results: bool = False
) -> SavingsVerdict:
    """What is to be said of these conversations. `only_results`: definitions count in none of them."""
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
