"""Keeps one server alive: starts it, watches it, restarts it after growing pauses, and carries calls to it.

Each server is its own failure domain: an error here ends only this server's session, with the reason in its state and,
for a bug of ours, a traceback in the log. Called by the pool; knows no other server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import httpx2

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec, Start, Transport
from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, CallLost, LoginRequired, ServerUnavailable, UpstreamError
from mcp_optimizer.runtime.logs import frames
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.diagnostics import (
    CONNECTION_CLOSED,
    Diagnostics,
    Dropped,
    Failure,
    explained,
    fault_of_ours,
)
from mcp_optimizer.upstream.exchanges import MergedNotices, OnNotice, ignore_notice, only_updates
from mcp_optimizer.upstream.listing import Listing, log_unusable
from mcp_optimizer.upstream.monitoring import CheckTrigger, Relisting, RestartPauses, rest_before_restart, until_gone
from mcp_optimizer.upstream.questions import ParkedCalls, asked_by
from mcp_optimizer.upstream.reporting import OnServerNotice, OnState, ServerLog, StateReporter
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, ServerGone
from mcp_optimizer.upstream.server_calls import Admission, Demand, LoginInCall, ServerCalls, with_input
from mcp_optimizer.upstream.session import UpstreamSession, open_session
from mcp_optimizer.upstream.session_choice import CLIENT_LEFT, OnlyClient, OwnSessions, SessionChoice, WatchedResources
from mcp_optimizer.upstream.state import KnownServer, PoolOptions, Recall, UpstreamState
from mcp_optimizer.upstream.transports.connecting import Connect, TransportChoice, connected

logger = logging.getLogger(__name__)
restarts = logger.getChild("restarts")
"""Logged on every restart attempt. Commands that report missing servers themselves silence this logger."""

_EXPECTED = (RpcError, ExchangeLost, ServerGone, UpstreamError, OSError, TimeoutError, httpx2.HTTPError)
"""What connecting to a server may raise. Any other error is our own bug, and is logged as one."""

STOPPING = "The gateway is stopping"

_TRIES = 3
"""How often a request starts a server that goes to rest at the same moment."""

_MOMENTS = 2.0
"""Longest restart pause, in seconds, for which a server that ran counts as restarting, so that callers wait for it."""


class Supervisor:
    """One server: its state, its session if it has one, and the loop that keeps it alive."""

    def __init__(
        self,
        spec: ServerSpec,
        options: PoolOptions,
        client_info: dict[str, Any],
        changed: OnState,
        noticed: OnServerNotice,
        only_client: OnlyClient,
        parked: ParkedCalls,
        connect: Connect = connected,
        authorization: Authorization | None = None,
        log: ServerLog | None = None,
        before: Supervisor | None = None,
        recall: Recall | None = None,
        *,
        is_own: bool = False,
    ) -> None:
        """`before` had the same name: what clients watch, and the number of restarts, is taken over from it. `recall`
        has what is known of servers from before: one of which enough is known rests until it is needed. `is_own`: it
        belongs to one caller, whose calls wait for it, and ask for the login that it lacks.
        """
        self.is_own = is_own
        self._spec = spec
        self._connect = connect
        self._authorization = authorization
        self._options = options
        self._timeout = spec.timeout or options.call_timeout
        self._client_info = client_info
        self._notices = partial(MergedNotices, partial(noticed, spec.name), options.limits.pending_notifications)
        self._noticed = self._notices(lambda: self._choice.key_of_first)
        redactor = Redactor(spec, authorization.secrets if authorization is not None else dict)
        restarted = before.state.restarts + 1 if before is not None else 0
        self._standing = StateReporter(spec, changed, redactor, log or ServerLog(options.limits), restarted)
        self._session: UpstreamSession | None = None
        self._approach = TransportChoice(spec)
        self._relisting = Relisting(spec.name, options.start_timeout, options.pacer)
        self._suspicion = CheckTrigger()
        self.watched: WatchedResources = WatchedResources(before.watched if before is not None else None)
        self._closing, self._is_stopped = "", False
        self._recall = recall if before is None else None
        self._demand = Demand(self._idle_timeout, lambda: self.is_in_use)
        self._rests = False
        """Whether the session ends because nothing needs it."""
        self._decided = asyncio.Event()
        """Whether the server runs, or has failed to."""
        self.admission = Admission(spec.name, options.most_under_way, options.most_waiting)
        silence = (lambda: self._idle_timeout) if options.has_joined_clients else None
        is_kept = self.watched.has_of
        self.own = OwnSessions(self._open_own, options.own_sessions, _EXPECTED, silence, self._own_ended, is_kept)
        now = lambda: self._spec, lambda: self._session, self._first_session
        self._choice: SessionChoice = SessionChoice(options, *now, self.own, only_client)
        self.sessions = self._choice.open_now
        self._parked = parked
        ways = LoginInCall(authorization, parked), self._choice.of, self._ask, options.limits.call_seconds
        self._calls = ServerCalls(spec.name, self.admission, parked, *ways)

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def state(self) -> UpstreamState:
        return self._standing.state

    @property
    def can_run(self) -> bool:
        return not self._spec.problem and not self._spec.disabled

    # Demand.

    @property
    def _starts_on_demand(self) -> bool:
        return (self._spec.start or self._options.start) is Start.ON_DEMAND

    @property
    def _idle_timeout(self) -> float:
        if not self._starts_on_demand:
            return math.inf
        return self._spec.idle_timeout or self._options.idle_timeout or math.inf

    def wake(self, link: ClientLink | None = None) -> None:
        """Start the server if it rests, because it is needed, perhaps by this client; returns at once."""
        self._choice.claim(link)
        self._demand.need()
        if self.state.status is ServerStatus.RESTING and not self._closing:
            self._standing.wake()

    @property
    def is_in_use(self) -> bool:
        """Whether something depends on the session at this moment."""
        calls = self.admission.under_way or self.admission.waiting
        # Where clients join and leave, the session is that of one client, and the others' do not need it.
        own = () if self._options.has_joined_clients else self.own.opened()
        watched = self.watched.has_of("", self._choice.key_of_first)
        return bool(calls or watched or own or self._parked.has_of(self._spec.name))

    # Calls.

    def request(self, method: str, params: dict[str, Any], caller: Caller) -> Coroutine[Any, Any, dict[str, Any]]:
        if self._closing:
            raise ServerUnavailable(self._spec.name, f"{self._closing}. Call again when it is back.")
        return self._calls.make(method, params, caller)

    async def task_result(self, params: dict[str, Any], task: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The result of a task that answered a call of a tool, for a client that cannot ask for it."""
        result: dict[str, Any] = await self._calls.task_result("tools/call", params, task, caller)
        return result

    async def _ask(
        self, session: UpstreamSession, method: str, params: dict[str, Any], caller: Caller
    ) -> dict[str, Any]:
        is_first = session is self._session or not self._options.has_joined_clients
        if is_first and (caller.link is not None or method == "tools/call"):
            self._choice.first.used()
        try:
            result = await session.request(method, params, self._timeout, caller)
            if not is_input_required(result):
                return result
            return await with_input(
                result,
                lambda given: session.request(method, {**params, **given}, self._timeout, caller),
                caller,
                session,
            )
        except CallInterrupted as error:
            if self._is_stopped:
                text = f"{self._closing} in the middle of the call. Whether the call took effect is not known."
                raise CallInterrupted(self._spec.name, text) from error
            # Once a caller learns that the server is gone, its tools must no longer be found.
            if self._session is session:
                self._down(session.failure() or CONNECTION_CLOSED, is_restarting=not self._closing)
                session.close_now()
            raise
        except CallLost:
            self._suspicion.raise_()
            raise
        finally:
            # Not before: while a call is in progress, `is_in_use` says so.
            if is_first:
                self._demand.use()

    def take_no_more(self, why: str = STOPPING) -> None:
        """Refuse new calls, with this reason."""
        self._closing = why

    def retire(self, why: str) -> None:
        """Refuse new calls and stop reporting: the server was replaced or removed. Calls in progress may finish."""
        self.take_no_more(why)
        self._standing.end()

    def interrupt(self) -> None:
        """Fail the calls in progress now."""
        self._closing = "The gateway stopped" if self._closing in ("", STOPPING) else self._closing
        self._is_stopped = True
        self._decided.set()
        if self._session is not None:
            self._session.close_now()

    async def _first_session(self) -> UpstreamSession:
        """The session that opens when the server starts, which it does now if it rests."""
        for _ in range(_TRIES):
            if self._session is None and not self._closing:
                await self._come_up()
            if self._session is not None:
                return self._session
        self._refuse_without_login()
        raise self.state.not_running()

    async def _come_up(self) -> None:
        """Start a server that rests, and wait for one that starts for this caller. Raises LoginRequired."""
        if self.is_own and self.state.status is ServerStatus.LOGIN_NEEDED:
            if self._authorization is None or not await self._authorization.has_another():
                self._refuse_without_login()
            if self.state.status is ServerStatus.LOGIN_NEEDED:
                # The login was made a moment ago: the start that follows it decides.
                self._decided.clear()
        elif not (self._may_start or (self.is_own and self.state.status is ServerStatus.STARTING)):
            return
        self.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.start_timeout):
                await self._decided.wait()

    def _refuse_without_login(self) -> None:
        """Raises LoginRequired, if that is why a caller's own server does not run."""
        if self.is_own and self.state.status is ServerStatus.LOGIN_NEEDED:
            name, reason = self._spec.name, self.state.reason
            raise LoginRequired(name, f"The server {name!r} did not take the call: {reason}.")

    @asynccontextmanager
    async def _open_own(self, link: ClientLink) -> AsyncIterator[UpstreamSession]:
        noticed = only_updates(self._notices(lambda: link.key)) if self._choice.is_apart else ignore_notice
        async with self._open(self._diagnostics(), noticed, owner=link) as session:
            with anyio.fail_after(self._options.start_timeout):
                is_for_state = link.is_modern and self._choice.is_apart
                await session.negotiate(legacy=self._approach.is_legacy or not is_for_state)
                await session.log_for(link, self._timeout)
                await self.watched.renew(session, self._timeout, link.key)
            yield session

    # Clients that join and leave.

    @property
    def _may_start(self) -> bool:
        """Whether it rests, or runs only for clients with sessions of their own."""
        return self.state.is_resting or (self._session is None and self.state.status is ServerStatus.RUNNING)

    def client_left(self, key: str) -> None:
        """End the session of a client that has left."""
        self.own.leave(key)
        self.watched.forget(key)
        if self._choice.first.left(key) and self._session is not None:
            self._rest(CLIENT_LEFT)

    def _rest(self, why: str) -> None:
        """The session is nobody's from now on, and its end follows. What still needs the server starts it again."""
        self._session, self._rests = None, True
        self._choice.first.closed()
        self._choice.first.released()
        self._decided.clear()
        self._demand.over()
        if not self._options.has_joined_clients or not self.own.opened():
            self._standing.rest(why=why)
        if self.watched.has_of("") or not self._starts_on_demand:
            self.wake()

    def _own_ended(self) -> None:
        """A client's own session has ended. If nothing else of the server runs, it rests."""
        runs_for_others = self._session is not None or self.own.opened() or self._demand.is_needed
        if self.state.status is ServerStatus.RUNNING and not runs_for_others and not self._closing:
            self._standing.rest(why=CLIENT_LEFT)

    def adapt(self, spec: ServerSpec) -> None:
        """Use an entry whose changes need no new session: selected tools, description, timeout."""
        self._spec = spec
        self._timeout = spec.timeout or self._options.call_timeout
        self._demand.adapt(self._idle_timeout)
        self._standing.change(spec=spec)
        if self._session is not None:
            self._session.adapt(spec)
            self._relisting.changed(at_once=True)

    def owned_by(self, key: str) -> UpstreamSession | None:
        if self._options.has_one_client or self._choice.first.is_of(key):
            return self._session
        return self.own.existing(key)

    async def watch(self, uri: str, link: ClientLink | None = None) -> None:
        key = self._choice.key_of(link)
        session = await (self._choice.of(link) if key else self._first_session())
        await self.watched.begin(uri, session, self._timeout, key)

    async def unwatch(self, uri: str, link: ClientLink | None = None) -> None:
        key = self._choice.key_of(link)
        await self.watched.end(uri, self.owned_by(key) if key else self._session, self._timeout, key)

    # Life cycle.

    async def show_only(self) -> None:
        """In place of `run`, for an entry that acts as each caller: no session, only what callers' servers list."""
        recall, self._recall = self._recall, None
        known = await recall(self._spec) if recall is not None else None
        if self.state.status is ServerStatus.STARTING:
            self._standing.rest(known or KnownServer(0))
        await asyncio.Event().wait()

    def show(self, listing: Listing, instructions: str) -> None:
        """Show what callers' own servers list together."""
        self._standing.change(status=ServerStatus.RUNNING, listing=listing, instructions=instructions, reason="")

    async def run(self) -> None:
        """Start, watch, restart, and rest while nothing needs it; until cancelled."""
        await self._rest_if_known()
        pauses = RestartPauses(self._options.first_pause, self._options.longest_pause)
        while True:
            started = time.monotonic()
            failure, retry_at_once = await self._live_once(started)
            if retry_at_once:
                continue
            if self._rests:
                self._rests = False
                await self._demand.arises()
                continue
            if failure.kind is FailureKind.LOGIN and self._authorization is not None:
                await self._wait_for_login(failure, self._authorization)
                continue
            pause = pauses.after(time.monotonic() - started)
            self._down(failure, is_restarting=self.state.is_restarting and pause <= _MOMENTS)
            reason = self.state.reason.rstrip(".")
            restarts.warning("Server %s is down: %s. Restarting in %.0f s.", self._spec.name, reason, pause)
            await rest_before_restart(pause)
            self._standing.change(status=ServerStatus.STARTING, is_restarting=False, restarts=self.state.restarts + 1)

    async def _rest_if_known(self) -> None:
        """Before the first start: rest until something needs the server, if it is known from before."""
        recall, self._recall = self._recall, None
        if recall is None or not self._starts_on_demand or self._demand.is_needed:
            return
        known = await recall(self._spec)
        if known is None or self._demand.is_needed or self._closing:
            return
        if self._authorization is not None and (missing := await self._authorization.missing()):
            # It is shown now, and not with the first call that fails.
            await self._wait_for_login(Failure(FailureKind.LOGIN, missing), self._authorization)
            return
        self._decided.clear()
        self._standing.rest(known)
        await self._demand.arises()

    async def _wait_for_login(self, failure: Failure, authorization: Authorization) -> None:
        self._down(failure, is_restarting=False)
        restarts.warning("Server %s: %s.", self._spec.name, self.state.reason.rstrip("."))
        await authorization.until_login()
        self._decided.clear()
        self._standing.change(status=ServerStatus.STARTING)

    async def _live_once(self, started: float) -> tuple[Failure, bool]:
        """Run the server once. Returns why it ended, and whether to try another way of connecting."""
        diagnostics = self._diagnostics()
        problem, was_up = CONNECTION_CLOSED, False
        try:
            async with self._open(diagnostics, self._notice) as session:
                # The listing is not a local variable, which would keep every definition alive as long as the server.
                self._up(session, await self._begin(session), time.monotonic() - started, diagnostics.stray)
                was_up = True
                if self._choice.first.is_over.is_set():
                    # Its client has left while it started.
                    self._rest(CLIENT_LEFT)
                try:
                    await self._watch(session, diagnostics)
                finally:
                    # At once: cleaning up after a dead child may take seconds, and no call should rely on it meanwhile.
                    if not self._rests:
                        self._down(diagnostics.failure() or CONNECTION_CLOSED, is_restarting=not self._closing)
        except* _EXPECTED as group:
            problem = explained(group, self._options.start_timeout)
        except* Exception as group:  # noqa: BLE001 - whatever it is, it ends this server's life and no other's
            problem = fault_of_ours(group)
            logger.error("Server %s: a fault of the gateway ended its session.\n%s", self._spec.name, frames(group))
        finally:
            self._choice.first.closed()
        if problem.kind is FailureKind.LOGIN:
            return problem, False
        return diagnostics.explanation(problem), not was_up and self._approach.try_another(diagnostics)

    def _diagnostics(self) -> Diagnostics:
        return Diagnostics(Dropped(self._spec.name), heard=self._standing.heard)

    def _open(
        self, diagnostics: Diagnostics, on_notice: OnNotice = ignore_notice, owner: ClientLink | None = None
    ) -> contextlib.AbstractAsyncContextManager[UpstreamSession]:
        info, limits, transport = self._client_info, self._options.limits, self._approach.transport
        return open_session(self._spec, transport, info, diagnostics, on_notice, owner, limits, self._connect)

    async def _begin(self, session: UpstreamSession) -> Listing:
        """Agree on a protocol and list the tools, within the time a server has to start."""
        with anyio.fail_after(self._options.start_timeout) as scope:
            legacy = self._approach.is_legacy
            if (client := await self._choice.opening()) is not None:
                session.own(asked_by(client, self._spec.name))
                # Use the client's era with a server that speaks both, so that nothing has to be translated.
                legacy = legacy or not client.is_modern
            await session.negotiate(legacy=legacy)
            if client is not None and self._options.has_joined_clients:
                await session.log_for(client, self._timeout)
            self._choice.agreed(session)
            await self.watched.renew(session, self._timeout, "", self._choice.key_of_first)
        return await session.list_tools(scope.deadline - anyio.current_time(), self._options.pacer)

    async def _watch(self, session: UpstreamSession, diagnostics: Diagnostics) -> None:
        """Until the session ends, list again when tools change, and check that an HTTP server still responds."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.watch_lists)
            tasks.start_soon(self._relisting.run, session, self._relisted)
            if self._approach.transport is not Transport.STDIO:
                tasks.start_soon(self._end_when_gone, session, diagnostics)
            tasks.start_soon(self._rest_when_idle, tasks.cancel_scope)
            if self._options.has_joined_clients:
                tasks.start_soon(self._choice.first.ends, tasks.cancel_scope)
            await session.wait_closed()
            tasks.cancel_scope.cancel()

    async def _rest_when_idle(self, watching: anyio.CancelScope) -> None:
        """End the session when nothing has needed the server for long. Whatever comes from now on starts it again."""
        await self._demand.ends()
        self._rest("nothing has used it for a while")
        watching.cancel()

    async def _end_when_gone(self, session: UpstreamSession, diagnostics: Diagnostics) -> None:
        reason = await until_gone(session, self._suspicion, self._options.limits.failed_checks)
        diagnostics.judge(Failure(FailureKind.SILENT, f"it stopped answering: {reason}"))
        session.close_now()

    def _notice(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/tools/list_changed":
            # Clients are notified later, when the new list is available.
            self._relisting.changed()
            return
        if method == "notifications/resources/list_changed" and self._has_skills:
            # Skills have no notification of their own, and their files are resources.
            self._relisting.changed()
        self._noticed(method, params)

    @property
    def _has_skills(self) -> bool:
        return self._session is not None and self._session.agreement.has_skills

    def list_again(self) -> None:
        """List tools and skills again, because they are not what was listed."""
        self._relisting.changed()

    def _relisted(self, listing: Listing) -> None:
        self._standing.change(listing=listing)
        self._noticed("notifications/tools/list_changed", {})

    # State.

    def _up(self, session: UpstreamSession, listing: Listing, seconds: float, stray: str) -> None:
        self._session = session
        self._decided.set()
        self._standing.up(session.agreement, listing, seconds, stray)
        log_unusable(self._spec.name, listing)

    def _down(self, failure: Failure, *, is_restarting: bool) -> None:
        self._session = None
        self._decided.set()
        self._standing.down(failure, is_restarting=is_restarting)
