"""Listings that wait to be taken into the catalog: the latest of each server, one after the other. Values only."""

from __future__ import annotations

import itertools

from mcp_optimizer.upstream.state import UpstreamState


class Arrivals:
    """A few are taken in at a time, so two thousand servers that start together do not cause two thousand tasks."""

    def __init__(self) -> None:
        self._waiting: dict[str, UpstreamState] = {}
        self._latest: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self.under_way = 0
        """How many are being taken in."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether none waits, or is being taken in."""
        return not self._waiting and not self.under_way

    def awaits(self, server: str) -> bool:
        return server in self._waiting

    def supersede(self, server: str) -> None:
        """A server listed its tools: earlier listings that are not taken in yet are not needed any more."""
        self._latest[server] = next(self._numbers)
        self._waiting.pop(server, None)

    def wait(self, state: UpstreamState) -> None:
        self._waiting[state.name] = state

    def take(self) -> tuple[UpstreamState, int]:
        """The one that has waited longest, and its number, to be taken in until `end`; there must be one."""
        self.under_way += 1
        state = self._waiting.pop(next(iter(self._waiting)))
        return state, self._latest[state.name]

    def end(self) -> None:
        self.under_way -= 1

    def is_latest(self, server: str, number: int) -> bool:
        return self._latest.get(server) == number

    def forget(self, server: str) -> None:
        """Nothing of this server is to be taken in."""
        self._waiting.pop(server, None)
        self._latest.pop(server, None)
