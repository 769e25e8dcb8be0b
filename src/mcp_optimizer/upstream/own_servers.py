"""The servers of entries that act as each caller: one for each caller that has needed one.

A caller's own server has a session and an authorization that no other caller gets. It starts when its caller needs it,
and rests by itself. Called by the pool, which starts and ends them; knows no session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.upstream.lifetimes import ServerLifetime
from mcp_optimizer.upstream.supervisor import Supervisor

_MOST_OF_ONE = 5_000
"""Callers' servers of one entry that exist at a time; beyond that, that of the longest silent caller ends."""


class OwnServers:
    """All callers' servers, by entry and caller."""

    def __init__(
        self,
        make: Callable[[ServerSpec, Principal], ServerLifetime],
        end: Callable[[ServerLifetime], None],
        most: int = _MOST_OF_ONE,
    ) -> None:
        """`make` makes and starts a caller's server; `end` ends one."""
        self._make = make
        self._end = end
        self._most = most
        self._of: dict[str, OrderedDict[str, ServerLifetime]] = {}

    def of(self, spec: ServerSpec, principal: Principal) -> Supervisor:
        """A caller's server, which starts if it is new. Raises ServerUnavailable for a caller that is not verified."""
        if not principal.is_verified:
            raise ServerUnavailable(
                spec.name,
                f"The server {spec.name!r} acts as each caller, and it is not known who calls. Send a key or a token "
                "with every request: `Authorization: Bearer ...`.",
            )
        known = self._of.setdefault(spec.name, OrderedDict())
        if principal.id not in known:
            known[principal.id] = self._make(spec, principal)
            self._end_oldest(known)
        known.move_to_end(principal.id)
        return known[principal.id].server

    def take(self, server: str, principal_id: str) -> ServerLifetime | None:
        """Forget a caller's server, and return it, to be ended; None if the caller has none."""
        return self._of.get(server, OrderedDict()).pop(principal_id, None)

    def of_entry(self, server: str) -> list[Supervisor]:
        """The servers of all callers for one entry."""
        return [one.server for one in self._of.get(server, {}).values()]

    def __iter__(self) -> Iterator[ServerLifetime]:
        for known in self._of.values():
            yield from known.values()

    def take_out(self, server: str) -> list[ServerLifetime]:
        """Forget all callers' servers of an entry, and return them, to be ended."""
        return list(self._of.pop(server, {}).values())

    def _end_oldest(self, known: OrderedDict[str, ServerLifetime]) -> None:
        """End the server of the caller that has been silent longest, if there are too many and it has nothing to do."""
        if len(known) <= self._most:
            return
        idle = next((key for key, one in known.items() if not one.server.is_in_use), None)
        if idle is not None:
            self._end(known.pop(idle))
