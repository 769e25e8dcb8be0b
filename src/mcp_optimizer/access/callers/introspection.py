"""Asks an issuer about its tokens (RFC 7662). Caches answers briefly, and sends one request per token at a time.

Anyone can make up tokens, and each causes a request to the issuer. Tokens that were recently valid therefore have slots
of their own, which made-up tokens cannot take, and no address can take all the other slots.

Loaded only if the settings name an introspection endpoint. API keys never reach it: `verification` keeps them out.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from mcp_optimizer.access.callers.claims import Recent, check_audience, check_times, hash_of, principal_of
from mcp_optimizer.access.callers.keys import CannotVerify, Rejected, ScopesMissing
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.identity.web import LoginFailed, Reply, Unanswered, Web
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_REMEMBERED = 60.0
_REMEMBERED_BAD = 5.0
"""Seconds for which a valid and an invalid token are cached."""

_KNOWN = 3_600.0
"""Seconds for which a token that was valid may use the slots of known tokens."""

_AT_ONCE = 64
"""Maximum concurrent requests about known tokens, and the same number about others. Further callers must try again, so
that a flood of made-up tokens does not flood the issuer.
"""

_WARNED = 60.0


class _Refusal(NamedTuple):
    """Why a token was rejected. Cached instead of the error, which would keep its stack frames alive."""

    reason: str
    scopes: tuple[str, ...] = ()

    def as_error(self) -> Rejected | ScopesMissing:
        return ScopesMissing(self.scopes) if self.scopes else Rejected(self.reason)


class _Places:
    """Slots for concurrent requests, counted by holder; a holder may take one only while it has fewer than are free."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._taken: Counter[str] = Counter()

    def take(self, who: str) -> bool:
        if self._taken[who] >= self._free:
            return False
        self._free -= 1
        self._taken[who] += 1
        return True

    def leave(self, who: str) -> None:
        self._free += 1
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


class Introspection:
    """Verifies the tokens of one issuer by asking it."""

    def __init__(self, issuer: TokenIssuer, web: Web, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._web = web
        self._clock = clock
        # Separate caches, so that any number of invalid tokens cannot evict a valid one.
        self._good: Recent[Principal] = Recent(clock)
        self._bad: Recent[_Refusal] = Recent(clock)
        self._holders: Recent[str] = Recent(clock)
        self._of_known, self._of_others = _Places(_AT_ONCE), _Places(_AT_ONCE)
        self._under_way: dict[bytes, asyncio.Task[Principal | _Refusal]] = {}
        self._asking = BackgroundTasks(logger, "Cannot ask about a token", expected=(CannotVerify,))
        self._warned_at = float("-inf")

    async def principal(self, token: str, resource: str, address: str = "") -> Principal:
        """The token's holder; raises Rejected, ScopesMissing or CannotVerify. `address`: the client's, if known."""
        audience = self._issuer.audience or resource
        key = hash_of(token, audience)
        found = self._good.get(key) or self._bad.get(key)
        if found is None:
            found = await asyncio.shield(self._flight(key, token, audience, address))
        if isinstance(found, Principal):
            return found
        raise found.as_error()

    async def close(self) -> None:
        await self._asking.close()

    def _flight(self, key: bytes, token: str, audience: str, address: str) -> asyncio.Task[Principal | _Refusal]:
        if (flight := self._under_way.get(key)) is not None:
            return flight
        holder = self._holders.get(key)
        places, who = (self._of_others, address) if holder is None else (self._of_known, holder)
        if not places.take(who):
            raise CannotVerify("Too many tokens are being asked about. Try again shortly.")

        def landed(_flight: object) -> None:
            del self._under_way[key]
            places.leave(who)

        flight = self._under_way[key] = self._asking.spawn(self._ask(key, token, audience))
        flight.add_done_callback(landed)
        return flight

    async def _ask(self, key: bytes, token: str, audience: str) -> Principal | _Refusal:
        claims = await self._claims(token)
        try:
            seconds = min(_REMEMBERED, self._checked(claims, audience) - time.time())
            found = principal_of(claims, self._issuer)
        except Rejected as refusal:
            return self._refused(key, _Refusal(str(refusal)))
        except ScopesMissing as refusal:
            return self._refused(key, _Refusal(str(refusal), refusal.scopes))
        self._good.put(key, found, seconds)
        self._holders.put(key, found.id, _KNOWN)
        return found

    def _refused(self, key: bytes, refusal: _Refusal) -> _Refusal:
        self._bad.put(key, refusal, _REMEMBERED_BAD)
        self._holders.forget(key)
        return refusal

    def _checked(self, claims: Mapping[str, Any], audience: str) -> float:
        """The time at which the token expires; raises Rejected if it is not valid for us."""
        if claims.get("active") is not True:
            raise Rejected("The token is unknown, expired or revoked.")
        # The answering issuer may omit its name, but must not give another's.
        if claims.get("iss", self._issuer.issuer) != self._issuer.issuer:
            raise Rejected("The token is of another issuer.")
        check_audience(claims, audience)
        return check_times(claims, time.time(), needs_end=False)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            reply = await self._web.post_form(self._issuer.introspection_url, form, self._credentials())
        except (Unanswered, LoginFailed) as error:
            self._warn(str(error))
            raise CannotVerify("The token's issuer does not answer. Try again shortly.") from None
        if reply.status != 200 or not isinstance(reply.body.get("active"), bool):
            self._warn(_what_is_wrong(reply))
            raise CannotVerify("The token's issuer does not say whether it is valid. Try again shortly.")
        return reply.body

    def _credentials(self) -> dict[str, str]:
        issuer = self._issuer
        if not issuer.client_id:
            return {}
        pair = f"{quote(issuer.client_id, safe='')}:{quote(issuer.client_secret, safe='')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _warn(self, problem: str) -> None:
        now = self._clock()
        if now - self._warned_at > _WARNED:
            self._warned_at = now
            logger.warning("Tokens of the issuer %r cannot be verified: %s", self._issuer.name, problem)


def _what_is_wrong(reply: Reply) -> str:
    if reply.status in (401, 403):
        return f"HTTP status {reply.status}: check its client_id and client_secret"
    return f"HTTP status {reply.status}, and no answer as in RFC 7662"
