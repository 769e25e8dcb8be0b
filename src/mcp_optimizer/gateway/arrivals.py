"""Starts the own servers of a caller that arrives, at entries that act as each caller, where it has a login.

A caller without a login gets no server until it makes a call: five hundred callers that use two of twenty servers have
a thousand sessions, not ten thousand. Called before every request of a verified caller; asks the store from time to
time, because other gateways make and end logins too.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mcp_optimizer.catalog.own_listings import OwnListings
from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import OptimizerError, ServerUnavailable
from mcp_optimizer.identity.logins import wants_login
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.pool import UpstreamPool

logger = logging.getLogger(__name__)

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
