"""Remembers who signed in on the dashboard: in the database, for twelve hours, a limited number of each.

Called by `reception` and by the command that lets the owner in; knows no request. A browser keeps 256 random bits,
never a key, and only their hash is stored, so neither a guess nor a look at the database leads to a sign-in.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.credentials import SignIn, SignInKind
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.credentials import StoredSignIns

T = TypeVar("T")

LASTS = 12 * 3_600
"""Seconds after which everybody signs in again."""
TICKET_LASTS = 120
"""Seconds for which a ticket can be used."""

_MOST_OF_ONE = 50
"""Sign-ins of one holder, so that nobody fills the database by signing in again and again."""

_LONGEST = 100
_WITH_KEY, _WITH_TOKEN = "key:", "token:"
"""What a ticket stands for that is not the owner's."""
_AWAY = "the database cannot be reached"


class SignIns:
    """The sign-ins that still hold, the same for all gateways on one database. Raises CatalogError without it."""

    def __init__(
        self,
        stored: Callable[[], Awaitable[StoredSignIns | None]],
        clock: Callable[[], float] = time.time,
        breaker: Breaker | None = None,
    ) -> None:
        self._stored = stored
        self._clock = clock
        self._breaker = breaker or Breaker()

    async def ticket(self) -> str:
        """What the owner's command shows to sign in as the owner, once and soon."""
        return await self._ticket(lambda _kept: "")

    async def ticket_with_key(self, key_id: str) -> str:
        """The same for somebody with a key, who is to sign in under another name of the gateway."""
        return await self._ticket(lambda _kept: f"{_WITH_KEY}{key_id}")

    async def ticket_with_token(self, token: str) -> str:
        """The same for somebody with the dashboard's token."""
        return await self._ticket(lambda kept: f"{_WITH_TOKEN}{_bound(kept, token)}")

    async def enter(self, ticket: str, token: str = "") -> str | None:
        """What a browser with a ticket is to keep; None if it is no good, or was used. `token`: the dashboard's, as it
        is now.
        """
        found = await self._end(ticket)
        if found is None or found.kind is not SignInKind.TICKET:
            return None
        if found.bound_to.startswith(_WITH_KEY):
            return await self.with_key(found.bound_to.removeprefix(_WITH_KEY))
        if found.bound_to:
            is_same = token and found.bound_to == f"{_WITH_TOKEN}{_bound(ticket, token)}"
            return await self.with_token(token) if is_same else None
        return await self._add(lambda _kept: SignIn(SignInKind.OWNER, self._clock() + LASTS))

    async def with_key(self, key_id: str) -> str:
        """What the browser of somebody with a key is to keep; a new one each time, whatever the browser sent before."""
        return await self._add(lambda _kept: SignIn(SignInKind.KEY, self._clock() + LASTS, key_id))

    async def with_token(self, token: str) -> str:
        """What the browser of somebody with the dashboard's token is to keep; another token ends it."""
        return await self._add(lambda kept: SignIn(SignInKind.DASHBOARD, self._clock() + LASTS, _bound(kept, token)))

    async def find(self, kept: str, token: str = "") -> SignIn | None:
        """The sign-in of a browser. `token`: the dashboard's, as it is now."""
        if not kept or len(kept) > _LONGEST:
            return None
        found = await self._within(lambda stored: stored.find(_digest(kept), self._clock()))
        if found is None or found.kind is SignInKind.TICKET:
            return None
        is_other_token = found.kind is SignInKind.DASHBOARD and (not token or found.bound_to != _bound(kept, token))
        return None if is_other_token else found

    async def end(self, kept: str) -> None:
        """Nobody continues with this."""
        await self._end(kept)

    async def _ticket(self, bound_to: Callable[[str], str]) -> str:
        return await self._add(lambda kept: SignIn(SignInKind.TICKET, self._clock() + TICKET_LASTS, bound_to(kept)))

    async def _add(self, made: Callable[[str], SignIn]) -> str:
        kept = secrets.token_urlsafe(32)
        await self._within(lambda stored: stored.add(_digest(kept), made(kept), _MOST_OF_ONE, self._clock()))
        return kept

    async def _end(self, kept: str) -> SignIn | None:
        if not kept or len(kept) > _LONGEST:
            return None
        return await self._within(lambda stored: stored.end(_digest(kept), self._clock()))

    async def _within(self, work: Callable[[StoredSignIns], Awaitable[T]]) -> T:
        """Nobody waits long for a database that does not answer."""

        async def begun() -> T:
            stored = await self._stored()
            if stored is None:
                raise CatalogError(_AWAY)
            return await work(stored)

        return await self._breaker.within(begun)


def _digest(kept: str) -> bytes:
    return hashlib.sha256(kept.encode("utf-8", "surrogatepass")).digest()


def _bound(kept: str, token: str) -> str:
    """Says which token it was, to nobody who does not have both."""
    return hashlib.sha256(f"{kept}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()
