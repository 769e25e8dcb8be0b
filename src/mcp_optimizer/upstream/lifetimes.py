"""Runs supervisors as tasks of the pool, those of callers' own servers too: a few starts in each iteration of the event
loop, and each ends by itself.

Called by the pool. Knows no session and no call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import anyio
import anyio.abc

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.upstream.supervisor import Supervisor

logger = logging.getLogger(__name__)

_STARTS_IN_ONE_TURN = 20


async def begin_serving(serving: Iterable[Callable[[], Coroutine[Any, Any, None]]], tasks: anyio.abc.TaskGroup) -> None:
    """Start these tasks, a few per iteration of the event loop. Starting thousands at once would block everything else
    for a third of a second, and a hundred for a tenth of a second while other threads work.
    """
    for number, serve in enumerate(serving, 1):
        tasks.start_soon(serve)
        if number % _STARTS_IN_ONE_TURN == 0:
            await asyncio.sleep(0)


class ServerLifetime:
    """One server from its start to its end. `serve` runs as a task of the pool; `end` lets its calls finish, then ends
    only this server.
    """

    def __init__(
        self, server: Supervisor, pause: float, before: ServerLifetime | None = None, *, is_face: bool = False
    ) -> None:
        """`pause`: seconds before a supervisor that failed because of our own bug is restarted. `before`: the server to
        wait for. `is_face`: no session is opened; callers have servers of their own.
        """
        self.server = server
        self.is_face = is_face
        self._pause = pause
        self._before = before
        self._scope: anyio.CancelScope | None = None
        self._is_ending = False
        self.ended = asyncio.Event()

    async def serve(self) -> None:
        try:
            if self._before is not None:
                await self._before.ended.wait()
                self._before = None
            if self.server.can_run and not self._is_ending:
                # Ended through this scope: cancelling the task from outside would interrupt the shielded end of its
                # child process. Created here, because a scope needs an event loop, which may not exist before.
                with anyio.CancelScope() as self._scope:
                    await self._keep_alive()
        finally:
            self.ended.set()

    async def end(self, seconds: float) -> None:
        """End the server after its calls in progress; calls that take longer than `seconds` get an error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.server.admission.emptied()
        self.server.interrupt()
        self._is_ending = True
        if self._scope is not None:
            self._scope.cancel()
        await self.server.own.close()
        await self.ended.wait()

    async def _keep_alive(self) -> None:
        """Run the supervisor, and restart it after a bug of ours, which must not reach other servers of the pool."""
        while True:
            try:
                await (self.server.show_only() if self.is_face else self.server.run())
            except Exception:
                logger.exception("Server %s: its supervisor failed; restarting it", self.server.state.name)
                await asyncio.sleep(self._pause)


# The servers of entries that act as each caller: one for each caller that has needed one. A caller's own server has a
# session and an authorization that no other caller gets. It starts when its caller needs it, and rests by itself.

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
