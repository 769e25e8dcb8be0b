"""Which events are about the servers at hand, and which about others. Pure; called before events are summed up.

A database may hold the events of several server files, and of servers that a file no longer has. What is said of a
catalog must not rest on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mcp_optimizer.domain.events import Event
from mcp_optimizer.metrics.savings import SILENCE


@dataclass(frozen=True)
class OwnHistory:
    """The events about the servers at hand, and how many were about others."""

    events: list[Event]
    others: int


def own_history(events: Iterable[Event], configuration: str, servers: Collection[str]) -> OwnHistory:
    """The conversations of a configuration in which no server is used that it does not have any more.

    Whole conversations, because part of one says nothing about what it cost. Those from before configurations were
    recorded count if they name servers at hand, and only those.
    """
    own: list[Event] = []
    others = 0
    for told in _conversations(events):
        named = {server for event in told for server in _named(event)}
        is_ours = told[0].configuration == configuration or (not told[0].configuration and bool(named))
        if is_ours and named <= set(servers):
            own += told
        else:
            others += len(told)
    return OwnHistory(sorted(own, key=lambda event: event.at), others)


def _conversations(events: Iterable[Event]) -> Iterator[list[Event]]:
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


def _named(event: Event) -> Iterator[str]:
    if event.server:
        yield event.server
    yield from (server for server, _ in event.found)
