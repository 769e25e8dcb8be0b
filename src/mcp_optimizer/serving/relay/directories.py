"""The directory that all callers share, and, where entries act as each caller, one for each caller.

What a caller's own server lists is in that caller's directory alone. Each directory follows the states of its servers,
and says which lists have changed. Called by the relay; asks no server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Set

from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.serving.relay.directory import Directory
from mcp_optimizer.upstream.state import UpstreamState

_MOST = 2_000
"""Callers whose directories are kept; the one that was silent longest has its lists fetched again."""


class FollowedDirectory:
    """A directory, and the servers in it that run or are coming. `told`: the lists whose changes clients hear of."""

    def __init__(self, directory: Directory, told: Set[str]) -> None:
        self.directory = directory
        self.coming: set[str] = set()
        self._told = told
        self._running: dict[str, frozenset[str]] = {}

    def on_state(self, state: UpstreamState) -> set[str]:
        """A server came or went, and its lists with it; returns the lists that changed."""
        is_running = state.is_available
        has = frozenset(state.capabilities) & self._told if is_running else frozenset[str]()
        if self._running.get(state.name) != has or not is_running:
            self.directory.forget(state.name)
        self.directory.follow(state)
        changed = set(self._running.get(state.name, frozenset()) ^ has)
        self._running[state.name] = has
        if state.is_coming and not state.is_resting:
            self.coming.add(state.name)
        elif state.name in self.coming:
            self.coming.discard(state.name)
            # Entries from an earlier start may have been sent to clients, and are gone now.
            gone = {kind for kind in ("prompts", "resources") if self.directory.remembers(state.name, kind)}
            changed |= ({"tools"} | gone) & self._told - has
        return changed

    def on_gone(self, server: str) -> set[str]:
        """A server was removed, or its name means another one; returns the lists that changed."""
        gone = {kind for kind in ("prompts", "resources") if self.directory.remembers(server, kind)}
        self.directory.remove(server)
        self.coming.discard(server)
        return gone | self._running.pop(server, frozenset())

    def on_notice(self, server: str, kind: str) -> set[str]:
        """A server says that its lists of a kind changed."""
        if kind in ("prompts", "resources"):
            self.directory.forget(server, kind)
        return {kind} & self._told


class Directories:
    """All directories of a gateway."""

    def __init__(
        self, shared: FollowedDirectory, make: Callable[[Principal], FollowedDirectory | None], most: int = _MOST
    ) -> None:
        """`make` makes a caller's directory; None: no entry acts as each caller."""
        self.shared = shared
        self._make = make
        self._most = most
        self._own: OrderedDict[str, FollowedDirectory] = OrderedDict()

    def of(self, principal: Principal) -> FollowedDirectory:
        """The directory with what exists for a caller."""
        known = self._own.get(principal.id)
        if known is None:
            if not principal.is_verified or (known := self._make(principal)) is None:
                return self.shared
            self._own[principal.id] = known
            if len(self._own) > self._most:
                self._own.popitem(last=False)
        self._own.move_to_end(principal.id)
        return known

    def existing(self, principal: Principal) -> FollowedDirectory | None:
        """A caller's own directory, if it has been used."""
        return self._own.get(principal.id)

    def __iter__(self) -> Iterator[FollowedDirectory]:
        yield self.shared
        yield from self._own.values()
