"""The servers of entries that act as each caller: one for each caller that has needed one.

A caller's own server has a session and an authorization that no other caller gets. It starts when its caller needs it,
and rests by itself. Called by the pool, which starts and ends them; knows no session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.upstream.lifetimes import ServerLifetime
from mcp_optimizer.upstream.supervisor import Supervisor

_MOST_OF_ONE = 5_000
"""Callers' servers of one entry that exist at a time; beyond that, that of the longest silent caller ends."""
_MOST_PROCESSES = 32
"""The same for entries with a command: a process each."""


class OwnServers:
    """All callers' servers, by entry and caller."""

    def __init__(
        self,
        make: Callable[[ServerSpec, Principal], ServerLifetime],
        end: Callable[[ServerLifetime], None],
        most: int = _MOST_OF_ONE,
        most_processes: int = _MOST_PROCESSES,
    ) -> None:
        """`make` makes and starts a caller's server; `end` ends one. `most_processes`: as `most`, for entries with a
        command.
        """
        self._make = make
        self._end = end
        self._most = most
        self._most_processes = most_processes
        self._of: dict[str, OrderedDict[str, ServerLifetime]] = {}

    def of(self, spec: ServerSpec, principal: Principal) -> Supervisor:
        """A caller's server, which starts if it is new. Raises ServerUnavailable for a caller that is not verified, or
        lacks a value that the entry needs. One that was started with other values of the caller is replaced.
        """
        if not principal.is_verified:
            raise ServerUnavailable(
                spec.name,
                f"The server {spec.name!r} acts as each caller, and it is not known who calls. Send a key or a token "
                "with every request: `Authorization: Bearer ...`.",
            )
        if missing := spec.missing_of(principal):
            raise ServerUnavailable(spec.name, f"The server {spec.name!r} was not called: {missing}.")
        known = self._of.setdefault(spec.name, OrderedDict())
        if spec.by_caller and (one := known.get(principal.id)) is not None and not _has_values(one, spec, principal):
            self._end(known.pop(principal.id))
        if principal.id not in known:
            self._make_room(spec, known)
            known[principal.id] = self._make(spec, principal)
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

    def _make_room(self, spec: ServerSpec, known: OrderedDict[str, ServerLifetime]) -> None:
        """End the server of the caller that has been silent longest, if there are too many and it has nothing to do.
        Raises ServerUnavailable if there would be too many processes.
        """
        is_process = spec.transport is Transport.STDIO
        if len(known) < (self._most_processes if is_process else self._most):
            return
        idle = next((key for key, one in known.items() if not one.server.is_in_use), None)
        if idle is not None:
            self._end(known.pop(idle))
        elif is_process:
            raise ServerUnavailable(
                spec.name,
                f"The server {spec.name!r} runs a process for each caller, and all {len(known):,} are in use. Try "
                "again shortly; the operator can raise client_sessions.",
            )


def _has_values(one: ServerLifetime, spec: ServerSpec, principal: Principal) -> bool:
    """Whether a caller's server was started with the values that the caller has now."""
    mine, wanted = one.server.spec, spec.for_caller(principal)
    return (mine.env, mine.headers) == (wanted.env, wanted.headers)
