"""Asks an issuer about its tokens (RFC 7662). Answers are remembered for a short time, and asked for once at a time.

Loaded only where the settings name an introspection endpoint. What is shown to the endpoint is nobody else's key: the
door sends no API keys here.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from mcp_optimizer.callers.claims import check_audience, check_times, principal_of
from mcp_optimizer.callers.outcomes import CannotVerify, Rejected, ScopesMissing
from mcp_optimizer.callers.recent import Recent, hash_of
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.domain.token_issuers import TokenIssuer
from mcp_optimizer.identity.web import LoginFailed, Reply, Unanswered, Web
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_REMEMBERED = 60.0
_REMEMBERED_BAD = 5.0
"""Seconds for which a good and a bad answer count."""

_AT_ONCE = 64
"""Questions under way. Whoever comes then is told to try again: a flood of made-up tokens must not become one there."""

_WARNED = 60.0


class _Refusal(NamedTuple):
    """What was found to be wrong with a token. An error itself would keep the frames it passed."""

    reason: str
    scopes: tuple[str, ...] = ()

    def as_error(self) -> Rejected | ScopesMissing:
        return ScopesMissing(self.scopes) if self.scopes else Rejected(self.reason)


class Introspection:
    """The tokens of one issuer, by its own word."""

    def __init__(self, issuer: TokenIssuer, web: Web, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._web = web
        self._clock = clock
        self._recent: Recent[Principal | _Refusal] = Recent(clock)
        self._under_way: dict[bytes, asyncio.Task[Principal | _Refusal]] = {}
        self._asking = BackgroundTasks(logger, "Cannot ask about a token", expected=(CannotVerify,))
        self._warned_at = float("-inf")

    async def principal(self, token: str, resource: str) -> Principal:
        """Whose token this is; raises Rejected, ScopesMissing or CannotVerify."""
        audience = self._issuer.audience or resource
        key = hash_of(token, audience)
        found = self._recent.get(key)
        if found is None:
            found = await asyncio.shield(self._flight(key, token, audience))
        if isinstance(found, Principal):
            return found
        raise found.as_error()

    async def close(self) -> None:
        await self._asking.close()

    def _flight(self, key: bytes, token: str, audience: str) -> asyncio.Task[Principal | _Refusal]:
        if (flight := self._under_way.get(key)) is None:
            if len(self._under_way) >= _AT_ONCE:
                raise CannotVerify("Too many tokens are being asked about. Try again shortly.")
            flight = self._under_way[key] = self._asking.spawn(self._ask(key, token, audience))
            flight.add_done_callback(lambda _: self._under_way.pop(key, None))
        return flight

    async def _ask(self, key: bytes, token: str, audience: str) -> Principal | _Refusal:
        claims = await self._claims(token)
        found: Principal | _Refusal
        try:
            seconds = min(_REMEMBERED, self._checked(claims, audience) - time.time())
            found = principal_of(claims, self._issuer)
        except Rejected as refusal:
            found, seconds = _Refusal(str(refusal)), _REMEMBERED_BAD
        except ScopesMissing as refusal:
            found, seconds = _Refusal(str(refusal), refusal.scopes), _REMEMBERED_BAD
        self._recent.put(key, found, seconds)
        return found

    def _checked(self, claims: Mapping[str, Any], audience: str) -> float:
        """When the token ends; raises Rejected if it is no good for us."""
        if claims.get("active") is not True:
            raise Rejected("The token is unknown, expired or revoked.")
        # The one who says so may leave its own name out, but must not give another's.
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
