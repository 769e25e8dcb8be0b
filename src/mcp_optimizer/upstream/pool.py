"""All servers of a gateway, each started, watched and restarted by its own supervisor.

No server waits for another. Changes (a server is up, its tools changed, it died) go to listeners at once, in the event
loop, as frozen values (`reporting`). A server whose entry changed starts after the process of the former entry has
ended, because many servers hold a lock or a port. All clients share one session with each server, except where that
would mix up their calls (`session_choice`), and with entries that act as each caller (`lifetimes`). Called by the
gateway and the catalog.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.abc

from mcp_optimizer.config.serverfile.spec import ServerSpec, Start
from mcp_optimizer.domain.caller import LOCAL, LOCAL_PRINCIPAL, Caller, ClientLink, Principal
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallNotWaiting, ConfigurationError, ServerUnavailable, UpstreamError, listed, quoted
from mcp_optimizer.upstream.authorization import Authorize, no_authorization
from mcp_optimizer.upstream.lifetimes import OwnServers, ServerLifetime, begin_serving
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.questions import Parked, ParkedCalls, Request, can_be_asked
from mcp_optimizer.upstream.reporting import ServerLog, ServerNews
from mcp_optimizer.upstream.server_calls import Admission, once_approved
from mcp_optimizer.upstream.session_choice import OnlyClient
from mcp_optimizer.upstream.state import PoolOptions, Recall, ServerSessions, UpstreamState
from mcp_optimizer.upstream.supervisor import Supervisor
from mcp_optimizer.upstream.transports import processes
from mcp_optimizer.upstream.transports.connecting import Connect, connecting, one_by_one


class UnsettledServers:
    """The servers of a pool that are starting."""

    def __init__(self, states: Iterable[UpstreamState]) -> None:
        self._names: set[str] = set()
        self._is_over = asyncio.Event()
        self._is_over.set()
        for state in states:
            self.changed(state)

    def changed(self, state: UpstreamState) -> None:
        if state.status is ServerStatus.STARTING:
            self._names.add(state.name)
            self._is_over.clear()
        else:
            self.gone(state.name)

    def gone(self, server: str) -> None:
        self._names.discard(server)
        if not self._names:
            self._is_over.set()

    async def over(self, timeout: float) -> None:
        """Wait until no server is starting, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                # Check again after waking, because other servers may have begun to start.
                while self._names:
                    await self._is_over.wait()


@dataclass(frozen=True)
class AppliedEntries:
    """The effect of applying new entries, by server name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


class UpstreamPool:
    """The servers of one gateway."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        options: PoolOptions,
        version: str,
        news: ServerNews | None = None,
        connect: Connect | None = None,
        authorize: Authorize = no_authorization,
        recall: Recall | None = None,
    ) -> None:
        """`news` is told what happens to the servers; `connect` is how they are reached; `authorize`, how they are told
        who calls. `recall` has what is known of servers that need not start before they are needed.
        """
        self._recall: Recall | None = recall
        self._connect = connect
        self._authorize = authorize
        self._options = options
        self._news = news or ServerNews()
        self._only_client = OnlyClient()
        are_known = options.has_one_client or options.has_joined_clients
        self._parked = ParkedCalls(options.parking, are_known=are_known, name=options.name_call)
        self._client_info = {"name": "mcp-optimizer", "version": version}
        self._logs: dict[str, ServerLog] = {}
        self._ending: set[ServerLifetime] = set()
        """Servers that were changed or removed, until their processes have ended."""
        self._last_ending: dict[str, ServerLifetime] = {}
        self._own = OwnServers(self._begin_own, self._end_own, most_processes=options.own_sessions)
        self._terms = {spec.name: self._term(spec) for spec in specs}
        self.by_caller = self._acting_as_callers()
        """The entries that act as each caller, and can be used. An attribute, because every request asks for it."""
        # An entry that is added later starts at once: the person who adds it wants to see whether it runs.
        self._recall = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._starting = UnsettledServers(self.states())

    def start(self) -> None:
        """Start every server in the background, and return at once."""
        self._running = asyncio.create_task(self._run(), name="upstream pool")

    async def stop(self) -> None:
        """Fail all waiting calls because the gateway stops, and end all servers concurrently."""
        # First, so that no server that ends now is restarted.
        self._stopping.set()
        for server in self._everybody():
            server.interrupt()
        ending = [self._parked.close(), *(server.own.close() for server in self._everybody())]
        running = [self._running] if self._running is not None else []
        ended = await asyncio.gather(*running, *ending, return_exceptions=True)
        await processes.release()
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def drained(self, timeout: float) -> None:
        """Accept no more calls, and wait until those in progress have ended, or until the time is up."""
        for server in self._everybody():
            server.take_no_more()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for admission in self.admissions():
                    await admission.emptied()

    async def _run(self) -> None:
        # One scope for all servers, cancelled from inside: cancelling a task from outside would interrupt the shielded
        # end of its child process.
        async with anyio.create_task_group() as self._tasks:
            await begin_serving([term.serve for term in (*self._terms.values(), *self._own)], self._tasks)
            await self._stopping.wait()
            self._tasks.cancel_scope.cancel()

    def _everybody(self) -> Iterator[Supervisor]:
        """All servers, including callers' own, and those that are ending."""
        for term in (*self._terms.values(), *self._own, *self._ending):
            yield term.server

    def _server(self, name: str) -> Supervisor:
        if name not in self._terms:
            raise ServerUnavailable(name, f"There is no server {quoted(name)} any more: its entry was removed.")
        return self._terms[name].server

    def _serving(self, name: str, principal: Principal) -> Supervisor:
        """The server that answers this caller: its own, if the entry acts as each caller."""
        shared = self._server(name)
        if not self._terms[name].is_face or not shared.can_run or self._stopping.is_set():
            return shared
        return self._own.of(shared.spec, principal)

    # Entries that act as each caller.

    def _acting_as_callers(self) -> Sequence[ServerSpec]:
        terms = self._terms.values()
        return tuple(term.server.spec for term in terms if term.is_face and term.server.can_run)

    def open_own(self, server: str, principal: Principal) -> None:
        """Start a caller's own server, unless it has one; returns at once."""
        self._serving(server, principal)

    def _end_own(self, term: ServerLifetime) -> None:
        self._end(term, f"The session of its caller with {term.server.spec.name!r} was ended")

    def close_own(self, server: str, principal: Principal) -> None:
        """End a caller's own server, because its login or the values that it was started with are gone; returns at
        once.
        """
        if (term := self._own.take(server, principal.id)) is not None:
            self._end(term, f"There is no session with {server!r} for its caller any more")

    def show(self, server: str, listing: Listing, instructions: str) -> None:
        """Show what callers' own servers list together."""
        if server in self._terms and self._terms[server].is_face:
            self._terms[server].server.show(listing, instructions)

    def _is_face(self, spec: ServerSpec) -> bool:
        return spec.is_of_each_caller and not self._options.has_one_caller

    def _begin_own(self, spec: ServerSpec, principal: Principal) -> ServerLifetime:
        changed, noticed = partial(self._news.own_changed, principal), partial(self._news.own_noticed, principal)
        # Whatever the entry says: five hundred callers' servers do not start with the gateway.
        spec = replace(spec.for_caller(principal), start=Start.ON_DEMAND)
        server = Supervisor(
            spec,
            self._options,
            self._client_info,
            changed,
            noticed,
            self._only_client,
            self._parked,
            self._reach(principal),
            self._authorize(spec, principal),
            self._logs[spec.name],
            is_own=True,
        )
        changed(server.state)
        term = ServerLifetime(server, self._options.longest_pause)
        if self._tasks is not None:
            self._tasks.start_soon(term.serve)
        return term

    def _reach(self, principal: Principal) -> Connect:
        authorize = partial(self._authorize, principal=principal)
        return one_by_one(self._connect or connecting(authorize, network=self._options.network), self._options.pacer)

    # New entries.

    def apply(self, specs: Sequence[ServerSpec]) -> AppliedEntries:
        """Use these servers from now on, in this order. In effect on return, while servers still start and end.

        A server whose entry is unchanged, or differs only in parts that its session does not depend on, keeps running.
        Others are ended after their calls, and started again.
        """
        if self._stopping.is_set():
            return AppliedEntries(unchanged=tuple(self._terms))
        wanted = {spec.name: spec for spec in specs}
        removed = [name for name in self._terms if name not in wanted]
        for name in removed:
            self._remove(name)
        added, there = ([name for name in wanted if (name in self._terms) is known] for known in (False, True))
        changed = [name for name in there if self._server(name).spec != wanted[name]]
        for name in changed:
            self._change(name, wanted[name])
        for name in added:
            self._begin(self._term(wanted[name]))
        self._terms = {name: self._terms[name] for name in wanted}
        self.by_caller = self._acting_as_callers()
        other = frozenset(changed)
        return AppliedEntries(
            tuple(added), tuple(removed), tuple(changed), tuple(name for name in there if name not in other)
        )

    def restart(self, name: str) -> None:
        """End a server after its calls in progress, and start it again without a pause; returns at once."""
        server = self._named(name).server
        if not server.can_run:
            raise ConfigurationError(f"The server {name!r} cannot be started: {server.state.reason.rstrip('.')}.")
        if not self._stopping.is_set():
            self._logs[name].happened("is restarted on request")
            self._replace(name, server.spec, f"The server {name!r} was restarted")

    def wake(self, name: str, caller: Caller = LOCAL) -> None:
        """Start a server that rests, because a caller needs it; returns at once."""
        if name in self._terms:
            self._serving(name, caller.principal).wake(caller.link)

    def list_again(self, name: str) -> None:
        """Have a server's tools and skills listed again, because they are not what was listed; returns at once."""
        if name in self._terms:
            for server in (self._terms[name].server, *self._own.of_entry(name)):
                server.list_again()

    def log(self, name: str) -> list[str]:
        """The last lines of a server's stderr, and what happened to it; oldest first, without its secrets."""
        self._named(name)
        return [str(line) for line in self._logs[name].lines()]

    def _named(self, name: str) -> ServerLifetime:
        """The server with a name that a person gave, who may have mistyped it."""
        if name not in self._terms:
            known = listed(list(self._terms)) or "none"
            raise ConfigurationError(f"There is no server {quoted(name)}. Servers: {known}.")
        return self._terms[name]

    def _change(self, name: str, spec: ServerSpec) -> None:
        before = self._server(name)
        if spec.of_session == before.spec.of_session:
            self._logs[name].happened("its entry changed; it goes on running")
            before.adapt(spec)
            for own in self._own.of_entry(name):
                mine = own.spec
                own.adapt(replace(spec, start=Start.ON_DEMAND, env=mine.env, headers=mine.headers, by_caller=()))
            return
        self._logs[name].happened("its entry changed")
        if replace(spec.of_session, disabled=False) != replace(before.spec.of_session, disabled=False):
            # The name now means another server, so listeners must forget what they know about it.
            self._news.gone(name)
        self._replace(name, spec, f"The entry of the server {name!r} was changed")

    def _replace(self, name: str, spec: ServerSpec, why: str) -> None:
        before = self._terms[name]
        self._end(before, why)
        self._begin(self._term(spec, before))

    def _remove(self, name: str) -> None:
        self._end(self._terms.pop(name), f"The server {name!r} was removed")
        del self._logs[name]
        self._news.gone(name)
        self._starting.gone(name)

    def _term(self, spec: ServerSpec, before: ServerLifetime | None = None) -> ServerLifetime:
        log = self._logs.setdefault(spec.name, ServerLog(self._options.limits))
        server = Supervisor(
            spec,
            self._options,
            self._client_info,
            self._changed,
            self._news.noticed,
            self._only_client,
            self._parked,
            self._reach(LOCAL_PRINCIPAL),
            None if self._is_face(spec) else self._authorize(spec),
            log,
            before.server if before is not None else None,
            self._recall,
        )
        ending = self._last_ending.get(spec.name)
        return ServerLifetime(server, self._options.longest_pause, ending, is_face=self._is_face(spec))

    def _begin(self, term: ServerLifetime) -> None:
        self._terms[term.server.spec.name] = term
        self.by_caller = self._acting_as_callers()
        self._changed(term.server.state)
        if self._tasks is not None:
            self._tasks.start_soon(term.serve)

    def _end(self, term: ServerLifetime, why: str) -> None:
        for own in self._own.take_out(term.server.spec.name) if term.is_face else ():
            self._end(own, why)
        term.server.retire(why)
        if self._tasks is not None:
            self._ending.add(term)
            if not term.server.is_own:
                self._last_ending[term.server.spec.name] = term
            self._tasks.start_soon(self._ended, term)

    async def _ended(self, term: ServerLifetime) -> None:
        await term.end(self._options.drain)
        self._ending.discard(term)
        if self._last_ending.get(name := term.server.spec.name) is term:
            del self._last_ending[name]

    def states(self) -> list[UpstreamState]:
        return [term.server.state for term in self._terms.values()]

    def sessions(self, name: str) -> ServerSessions:
        """The sessions with a server that are open now."""
        return self._server(name).sessions()

    def runs_for_each_client(self, name: str) -> bool:
        """Whether every client has a session with this server that no other client has."""
        return name in self._terms and self.sessions(name).are_apart

    def admissions(self) -> list[Admission]:
        return [server.admission for server in self._everybody()]

    async def settled(self, timeout: float) -> None:
        """Wait until no server is starting, or until the time is up."""
        await self._starting.over(timeout)

    def call(
        self, server: str, method: str, params: dict[str, Any], caller: Caller = LOCAL
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Send one request to a running server, under its deadline; returns the raw result."""
        return self._serving(server, caller.principal).request(method, params, caller)

    async def task_result(
        self, server: str, params: dict[str, Any], task: dict[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """The result of a task that answered a call of a tool, for a client that cannot ask for it."""
        return await self._serving(server, caller.principal).task_result(params, task, caller)

    async def answer_here(
        self,
        server: str,
        params: dict[str, Any],
        caller: Caller,
        answer: Callable[[Caller], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Make a call that this process answers itself. If a person must agree first, a modern client is asked by a
        result, and the call waits for the request with the answer.
        """
        request = Request.of(server, "tools/call", params)
        if caller.is_continuing:
            return await self._parked.go_on(request, caller)
        if caller.approval is None:
            return await answer(caller)
        return await self._parked.begin(request, caller, partial(once_approved, answer))

    async def answer_in_parts(
        self, request: Request, caller: Caller, make: Callable[[Caller], Coroutine[Any, Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        """Do work of this process during which the caller's client may be asked. A modern client is asked by a result,
        and the work waits for the request with the answers.
        """
        if self._parked.find(caller) is not None:
            return await self._parked.go_on(request, caller)
        if "requestState" in caller.passed_on:
            raise CallNotWaiting
        if caller.link is None or not caller.link.is_modern or not can_be_asked(caller.link.capabilities):
            return await make(caller)
        return await self._parked.begin(request, caller, make)

    def parked(self, caller: Caller) -> Parked | None:
        """The parked call that a client's answers continue, if any; raises the call's error if it failed meanwhile."""
        return self._parked.find(caller)

    async def watch_resource(self, server: str, uri: str, caller: Caller = LOCAL) -> None:
        """Report changes of a resource through the news, also after the server was restarted. `caller`: whose server,
        or session, it is.
        """
        await self._serving(server, caller.principal).watch(uri, caller.link)

    async def unwatch_resource(self, server: str, uri: str, caller: Caller = LOCAL) -> None:
        if server in self._terms:
            await self._serving(server, caller.principal).unwatch(uri, caller.link)

    def client_connected(self, client: Callable[[], ClientLink]) -> None:
        """A client has introduced itself."""
        self._only_client.client_connected(client)

    def client_left(self, key: str) -> None:
        """End the own sessions of a client that has left."""
        self._only_client.left(key)
        for server in self._everybody():
            server.client_left(key)

    async def tell(self, key: str, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Pass a client's notification on to every session that it owns."""
        sessions = [server.owned_by(key) for server in self._everybody()]
        await asyncio.gather(*(session.tell(method, params) for session in sessions if session is not None))

    async def set_log_level(self, key: str, level: str) -> None:
        """Set the log level in every session that a client owns; later sessions get it when they open."""
        for server in list(self._everybody()):
            session = server.owned_by(key)
            if session is not None and not session.is_modern and session.can("logging"):
                with contextlib.suppress(UpstreamError):
                    await session.request("logging/setLevel", {"level": level}, self._options.call_timeout)

    def _changed(self, state: UpstreamState) -> None:
        self._starting.changed(state)
        self._news.changed(state)
