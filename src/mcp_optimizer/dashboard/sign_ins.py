"""Stores dashboard sign-ins in the database, for twelve hours, with a limit per holder, and names the host under which
browsers keep them.

Called by `reception` and by the command that admits the owner; knows no request. A browser keeps 256 random bits, never
a key, and only their hash is stored, so neither guessing nor reading the database leads to a sign-in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.domain.credentials import SignIn, SignInKind
from mcp_optimizer.errors import CatalogError, ConfigurationError
from mcp_optimizer.runtime.local_names import LocalNames
from mcp_optimizer.runtime.signatures import Signatures

if TYPE_CHECKING:
    from mcp_optimizer.db.credentials import StoredSignIns


# The host name under which browsers keep a sign-in to a gateway on loopback; no other program knows it. Cookies
# belong to a host name, whatever the port: a browser sends a cookie for 127.0.0.1 to every program that listens on a
# port there. Names under `.localhost` also lead to this machine, so sign-ins get one of their own. It is derived from
# the key that gateways share, and disclosed only to visitors who are signed in.

_PURPOSE = "the name of the dashboard"
_END = ".localhost"
_PATIENCE = 8.0
"""Seconds to wait for the shared key."""
_LOOK_AGAIN = 0.1
_TAKEN = (
    "Another program listens at {}, where browsers would send the sign-in. End it, or serve at another port, and "
    "restart the gateway. With --by-address, a browser is only sent to the gateway's own address."
)
_UNKNOWN = "the key that gateways share cannot be read"


class SignInHost:
    """The host name, available once the shared key is read."""

    def __init__(self, signatures: Signatures, local_names: LocalNames) -> None:
        self._signatures = signatures
        self._local_names = local_names

    async def origin(self, port: int | None) -> str:
        """The origin at which a browser signs in. Raises CatalogError while the name is not known, and
        ConfigurationError if such a name may lead to another program.
        """
        if taken_at := self._local_names.taken_at:
            raise ConfigurationError(_TAKEN.format(taken_at))
        await self._look()
        if not (name := self._name()):
            raise CatalogError(_UNKNOWN)
        return f"http://{name}:{port}" if port is not None else f"http://{name}"

    async def admits(self, request: Request) -> bool:
        """Whether a request was sent to this name; waits for the name in a process that has just started."""
        if _parts(request)[0].endswith(_END):
            await self._look()
        return self.is_named(request)

    def is_named(self, request: Request) -> bool:
        """Whether a request was sent to this name, if it is known."""
        given = _parts(request)[0].encode("utf-8", "surrogatepass")
        return bool(given) and hmac.compare_digest(given, self._name().encode())

    async def _look(self) -> None:
        """Waits longer than usual: a person who has just started the gateway prefers a short wait to an error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._signatures.look()
                while self._signatures.is_waiting:
                    await asyncio.sleep(_LOOK_AGAIN)
                    await self._signatures.look()

    def _name(self) -> str:
        mark = self._signatures.shared_mark(_PURPOSE)
        # Host names ignore case, so the mark itself, which has capitals, cannot be used.
        return f"{hashlib.sha256(mark.encode()).hexdigest()[:32]}{_END}" if mark else ""


def is_shared(request: Request) -> bool:
    """Whether other programs may have pages under the host name of a request: it means any port of this machine."""
    return request.scope.get("scheme") == "http" and is_loopback(_parts(request)[0])


def port_of(request: Request) -> int | None:
    """The port that the browser uses, which a tunnel may have changed."""
    return _parts(request)[1]


def listening_at(request: Request) -> str:
    """The gateway's listening address, which is not secret, with the browser's port."""
    listens, _ = request.scope.get("server") or ("", None)
    host, port = listens if is_loopback(listens) else "127.0.0.1", port_of(request)
    return f"http://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port is not None else "")


def _parts(request: Request) -> tuple[str, int | None]:
    """The name and port in the Host header; an empty name if it cannot be read."""
    try:
        given = urlsplit(f"http://{request.headers.get('host', '')}")
        return given.hostname or "", given.port
    except ValueError:
        return "", None


T = TypeVar("T")

LASTS = 12 * 3_600
"""Seconds after which a new sign-in is needed."""
TICKET_LASTS = 120
"""Seconds for which a ticket is valid."""

_MOST_OF_ONE = 50
"""Sign-ins per holder, so that repeated sign-ins cannot fill the database."""

_LONGEST = 100
_WITH_KEY, _WITH_TOKEN = "key:", "token:"
"""Prefixes for tickets that do not stand for the owner."""
_AWAY = "the database cannot be reached"


class SignIns:
    """The valid sign-ins, shared by all gateways on one database. Raises CatalogError without it."""

    def __init__(
        self,
        stored: Callable[[], Awaitable[StoredSignIns | None]],
        clock: Callable[[], float] = time.time,
        breaker: Breaker | None = None,
        since: float = 0.0,
    ) -> None:
        """`since`: sign-ins and tickets made earlier are invalid here, because until then another program may have
        listened at the gateway's port, and a page left open sends its cookie there.
        """
        self._since = since
        self._stored = stored
        self._clock = clock
        self._breaker = breaker or Breaker()

    async def ticket(self) -> str:
        """A ticket for the owner's command: signs in as the owner, once and within a short time."""
        return await self._ticket(lambda _kept: "")

    async def ticket_with_key(self, key_id: str) -> str:
        """A ticket for the holder of a key, who must sign in under another name of the gateway."""
        return await self._ticket(lambda _kept: f"{_WITH_KEY}{key_id}")

    async def ticket_with_token(self, token: str) -> str:
        """The same for the holder of the dashboard's token."""
        return await self._ticket(lambda kept: f"{_WITH_TOKEN}{_bound(kept, token)}")

    async def enter(self, ticket: str, token: str = "") -> str | None:
        """Exchanges a ticket for the secret that the browser keeps; None if the ticket is invalid or used. `token`: the
        dashboard's current token.
        """
        found = await self._end(ticket)
        if found is None or found.kind is not SignInKind.TICKET or found.until - TICKET_LASTS < self._since:
            return None
        if found.bound_to.startswith(_WITH_KEY):
            return await self.with_key(found.bound_to.removeprefix(_WITH_KEY))
        if found.bound_to:
            is_same = token and found.bound_to == f"{_WITH_TOKEN}{_bound(ticket, token)}"
            return await self.with_token(token) if is_same else None
        return await self._add(lambda _kept: SignIn(SignInKind.OWNER, self._clock() + LASTS))

    async def with_key(self, key_id: str) -> str:
        """The secret for the browser of a key's holder; always a new one, whatever the browser sent."""
        return await self._add(lambda _kept: SignIn(SignInKind.KEY, self._clock() + LASTS, key_id))

    async def with_token(self, token: str) -> str:
        """The secret for the browser of the token's holder; it becomes invalid when the token changes."""
        return await self._add(lambda kept: SignIn(SignInKind.DASHBOARD, self._clock() + LASTS, _bound(kept, token)))

    async def with_person(self, person: str, lasts: float) -> str:
        """The secret for the browser of a person who signed in at a token issuer; `person`: what the issuer says."""
        return await self._add(lambda _kept: SignIn(SignInKind.PERSON, self._clock() + min(lasts, LASTS), person))

    async def use_once(self, what: str, seconds: float) -> bool:
        """Marks something as used for a time; returns whether it was not used before, at any gateway."""
        digest, now = _digest(f"used {what}"), self._clock()
        return await self._within(lambda stored: stored.use_once(digest, now + seconds, now))

    async def find(self, kept: str, token: str = "") -> SignIn | None:
        """The sign-in of a browser. `token`: the dashboard's current token."""
        if not kept or len(kept) > _LONGEST:
            return None
        found = await self._within(lambda stored: stored.find(_digest(kept), self._clock()))
        if found is None or found.kind in (SignInKind.TICKET, SignInKind.USED) or found.until - LASTS < self._since:
            return None
        is_other_token = found.kind is SignInKind.DASHBOARD and (not token or found.bound_to != _bound(kept, token))
        return None if is_other_token else found

    async def end(self, kept: str) -> None:
        """Ends a sign-in."""
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
        """Limits how long a request waits for a database that does not answer."""

        async def begun() -> T:
            stored = await self._stored()
            if stored is None:
                raise CatalogError(_AWAY)
            return await work(stored)

        return await self._breaker.within(begun)


def _digest(kept: str) -> bytes:
    return hashlib.sha256(kept.encode("utf-8", "surrogatepass")).digest()


def _bound(kept: str, token: str) -> str:
    """Binds a sign-in to the dashboard's token: a digest that can be checked only with both secrets."""
    return hashlib.sha256(f"{kept}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()
