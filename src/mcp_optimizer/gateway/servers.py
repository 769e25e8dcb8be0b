"""The servers that a request needs: waits for those that are starting, starts a caller's own, and routes calls to
built-in ones.

Called by the gateway before a request is resolved. A request waits for a bounded time, because denying a tool that is
about to exist would make a model give up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.catalog.own_listings import OwnListings
from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec
from mcp_optimizer.domain.caller import LOCAL, Caller, Principal
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import OptimizerError, ServerUnavailable, StillStarting
from mcp_optimizer.identity.logins import wants_login
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.pipeline import RESULT_META_KEY, Ask, Results
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.pool import UpstreamPool

logger = logging.getLogger(__name__)


# Routes calls to built-in servers: each registers here, and calls of its tools go to it. A server configured by the
# user never loses its name to a built-in one.

Answer = Callable[[str, Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]
"""Handles a call: takes the tool's own name, the arguments and the permitted caller; returns the complete result."""


class BuiltInServers:
    """The registered built-in servers and their handlers. A call waits in the pool while a person is asked about it."""

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self._answers: dict[str, Answer] = {}

    def serve(self, server: str, answer: Answer) -> None:
        """Send calls of this server's tools to `answer` from now on."""
        self._answers[server] = answer

    def end(self, server: str) -> None:
        """Unregister the server and free its name."""
        self._answers.pop(server, None)

    def has(self, server: str) -> bool:
        return server in self._answers

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The result, limited and described by that server; or, for a modern client, a question to its user."""
        params = {"name": tool, "arguments": arguments}
        return await self._pool.answer_here(server, params, caller, partial(self._answers[server], tool, arguments))

    async def answered(self, results: Results, call: Call, caller: Caller, ask: Ask) -> dict[str, Any]:
        """The result of a permitted call, within the limits and with its cost; `ask` calls a server that the user
        configured.
        """
        if not self.has(call.server):
            return await results.answer(call, ask)
        result = await self.call(call.server, call.tool, call.arguments, caller)
        said = result.get("_meta") or {}
        # A truncated result is selected from with read_result, as its notice says.
        if call.select is None or is_input_required(result) or RESULT_META_KEY in said:
            return result
        selected = await results.answer(call, partial(_given, result))
        return {**selected, "_meta": {**said, **(selected.get("_meta") or {})}}


async def _given(result: dict[str, Any]) -> dict[str, Any]:
    return result


# Waits for servers that are starting, on behalf of a request that may mean one of them. A first search or call often
# arrives while servers start and the encoder loads. Denying a tool that is about to exist would make a model give up,
# so the request waits for a bounded time. If a server's tools are known from an earlier start, a search finds them at
# once, and only a call waits. A server whose tools are unknown delays nothing once it has been starting for long.

_PATIENCE = 8.0
"""Maximum seconds that a request waits for servers that it may or may not mean."""

_CALL_PATIENCE = 30.0
"""Maximum seconds that a call waits for its tool's server."""

_NEW = 20.0
"""Seconds after which a server that is still starting is no longer waited for."""


Own = Callable[[Snapshot, Caller], Snapshot]
"""The snapshot with a caller's own servers."""


class StartingServers:
    """Lets requests wait for starting servers."""

    def __init__(
        self,
        catalog: LiveCatalog,
        wake: Callable[[str, Caller], None],
        patience: float = _PATIENCE,
        call_patience: float = _CALL_PATIENCE,
        own: Own | None = None,
    ) -> None:
        """`wake` starts a server that rests, for a caller. `own` has a caller's own servers."""
        self._catalog = catalog
        self._wake = wake
        self._own: Own = own or (lambda snapshot, _caller: snapshot)
        self._patience = patience
        self._call_patience = call_patience

    async def until_up(self, server: str, caller: Caller = LOCAL) -> None:
        """Wait until a starting server runs and its current tools are listed, or it is down.

        Raises StillStarting.
        """
        self._wake(server, caller)
        await self._while(lambda snapshot: is_coming(snapshot, server), server, caller)

    async def until_known(self, servers: Sequence[str], caller: Caller = LOCAL) -> None:
        """Wait until the tools of one of these servers are known, or it is down. Raises StillStarting."""
        await self._while(
            lambda snapshot: all(_is_unknown(snapshot, one) for one in servers),
            servers[0],
            caller,
        )

    async def _while(self, is_early: Callable[[Snapshot], bool], server: str, caller: Caller) -> None:
        try:
            async with asyncio.timeout(self._call_patience):
                while is_early(self._own(self._catalog.snapshot, caller)):
                    await self._catalog.changed()
        except TimeoutError:
            since = self._own(self._catalog.snapshot, caller).states[server].since
            raise StillStarting(server, time.time() - since) from None

    async def wait(
        self, view: Callable[[], Awaitable[Snapshot]], is_enough: Callable[[Snapshot], Awaitable[bool]]
    ) -> bool:
        """Wait until a request has what it needs, or no server has just begun to start; returns whether it waited."""
        waited = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                before, own = self._catalog.snapshot, self._catalog.own_changes
                while _is_beginning(seen := await view()) and not await is_enough(seen):
                    waited = True
                    # A change that arrived while this snapshot was searched would not be reported again.
                    if self._catalog.snapshot is before and self._catalog.own_changes == own:
                        await self._catalog.changed()
                    before, own = self._catalog.snapshot, self._catalog.own_changes
        return waited


def is_coming(snapshot: Snapshot, server: str) -> bool:
    """Whether a server is starting, or its list of tools is just being read."""
    state = snapshot.states.get(server)
    if state is None:
        return False
    if state.is_coming or server in snapshot.expected:
        return True
    return state.status is ServerStatus.RUNNING and any(one.name == server for one in snapshot.missing())


def _is_unknown(snapshot: Snapshot, server: str) -> bool:
    """Whether a server is coming whose tools are not known yet."""
    is_resting = server in snapshot.states and snapshot.states[server].status is ServerStatus.RESTING
    return is_coming(snapshot, server) and server not in snapshot.expected and not is_resting


def _is_beginning(snapshot: Snapshot) -> bool:
    if snapshot.encoder_is_loading:
        return True
    if not snapshot.is_starting:
        return False
    now = time.time()
    return any(not state.is_down and now - state.since < _NEW for state in snapshot.missing())


# Starts the own servers of a caller that arrives, at entries that act as each caller, where it has a login. A caller
# without a login gets no server until it makes a call: five hundred callers that use two of twenty servers have a
# thousand sessions, not ten thousand. Called before every request of a verified caller; asks the store from time to
# time, because other gateways make and end logins too.

_LOOK_AGAIN = 3.0
"""Seconds after which the store is asked again which logins a caller has."""

_MOST = 10_000
"""Callers whose logins are remembered."""

LoggedIn = Callable[[Iterable[ServerSpec], Principal], Awaitable[frozenset[str]]]
"""The servers to which a caller has a login of its own."""


@dataclass
class _Arrived:
    """What is known of a caller's logins."""

    logins: frozenset[str] = frozenset()
    looked_at: float = field(default_factory=time.monotonic)
    is_known: bool = False
    latest: Principal | None = None
    """The principal of the latest request."""
    entries: dict[str, ServerSpec | None] = field(default_factory=dict, repr=False)
    """The entries that use values of the caller, with these; None: it lacks some."""

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self.looked_at > _LOOK_AGAIN

    def look_again(self) -> None:
        """The store is asked again now."""
        self.looked_at = time.monotonic()

    def note(self, principal: Principal, entries: dict[str, ServerSpec | None]) -> list[str]:
        """This is the caller with its values now; returns the entries for which it had others."""
        before, self.latest, self.entries = self.entries, principal, entries
        return [name for name, entry in entries.items() if name in before and before[name] != entry]

    def know(self, logins: frozenset[str]) -> None:
        """These are the caller's logins."""
        self.logins, self.is_known = logins, True


class Arrivals:
    """The callers that have arrived, and their logins."""

    def __init__(
        self, pool: UpstreamPool, listings: OwnListings, logged_in: LoggedIn, how_to_log_in: Callable[[], str]
    ) -> None:
        self._pool = pool
        self._listings = listings
        self._logged_in = logged_in
        self._how = how_to_log_in
        self._known: OrderedDict[str, _Arrived] = OrderedDict()
        self._looking = BackgroundTasks(logger, "The logins of a caller could not be looked for")

    async def of(self, principal: Principal) -> None:
        """Note a request of this caller. Waits only the first time, for the store."""
        specs = self._pool.by_caller
        if not specs or not principal.is_verified:
            return
        known = self._known.get(principal.id)
        if known is None:
            known = self._known[principal.id] = _Arrived()
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
            self._note_values(specs, principal, known)
            await self._look(specs, principal, known)
        else:
            self._known.move_to_end(principal.id)
            if known.latest is not principal and self._note_values(specs, principal, known) and known.is_known:
                self._use(principal, known, known.logins, specs)
            if known.is_old:
                known.look_again()
                self._looking.spawn(self._look(specs, principal, known))

    def _note_values(self, specs: Sequence[ServerSpec], principal: Principal, known: _Arrived) -> bool:
        """Forget what servers listed for a caller with other values than it has now; returns whether they did."""
        entries = {spec.name: _with_values(spec, principal) for spec in specs if spec.by_caller}
        changed = known.note(principal, entries)
        for name in changed:
            self._pool.close_own(name, principal)
            self._listings.forget_own(name, principal.id)
        return bool(changed)

    def lacks_login(self, spec: ServerSpec, principal: Principal) -> str:
        """Why a caller has to log in to a server first; empty if it has a login, needs none, or is not known yet."""
        known = self._known.get(principal.id)
        if known is None or not known.is_known or not _needs_login(spec) or spec.name in known.logins:
            return ""
        return f"login needed: {self._how()}"

    def changed(self, _what: str, server: str, principal: Principal) -> None:
        """A caller has logged in or out at this gateway."""
        known = self._known.get(principal.id)
        spec = next((one for one in self._pool.by_caller if one.name == server), None)
        if known is not None and spec is not None:
            is_made = _what == "login/made"
            # A login that began at another gateway comes without the caller's values.
            self._use(
                known.latest or principal,
                known,
                known.logins | {server} if is_made else known.logins - {server},
                [spec],
            )

    async def close(self) -> None:
        await self._looking.settled()

    async def _look(self, specs: Sequence[ServerSpec], principal: Principal, known: _Arrived) -> None:
        try:
            found = await self._logged_in([spec for spec in specs if _needs_login(spec)], principal)
        except OptimizerError as failure:
            logger.warning("The logins of callers cannot be read: %s", failure)
            return
        self._use(principal, known, found, specs)

    def _use(self, principal: Principal, known: _Arrived, logins: frozenset[str], specs: Sequence[ServerSpec]) -> None:
        ended, is_new = known.logins - logins, not known.is_known or logins != known.logins
        known.know(logins)
        for spec in specs:
            if spec.name in ended:
                self._pool.close_own(spec.name, principal)
                self._listings.forget_own(spec.name, principal.id)
            elif (spec.name in logins or not _needs_login(spec)) and self._is_worth_starting(spec, principal):
                with contextlib.suppress(ServerUnavailable):
                    # All processes are in use: the next look, or the caller's own call, tries again.
                    self._pool.open_own(spec.name, principal)
        if is_new:
            self._listings.note_change(principal.id)

    def _is_worth_starting(self, spec: ServerSpec, principal: Principal) -> bool:
        """Whether a caller's server is started before it is called: to be listed. A process, or an exchange of a token,
        for each caller of a gateway, whatever it calls, would be too many.
        """
        if not spec.by_caller and spec.auth.exchange is None:
            return True
        return not spec.missing_of(principal) and self._listings.listing(spec.name, principal.id) is None


def _with_values(spec: ServerSpec, principal: Principal) -> ServerSpec | None:
    return None if spec.missing_of(principal) else spec.for_caller(principal)


def _needs_login(spec: ServerSpec) -> bool:
    """Whether a person has to log in to a server."""
    return spec.auth.kind is AuthKind.OAUTH and wants_login(spec)
