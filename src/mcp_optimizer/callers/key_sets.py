"""The public keys of one issuer (its JWKS), fetched when they are first needed and when a token names one that is new.

One fetch at a time, and one in ten seconds for keys that nobody knows, however many are named. While a fetch fails, the
keys from before stay in use.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from mcp_optimizer.callers.outcomes import CannotVerify
from mcp_optimizer.domain.token_issuers import TokenIssuer
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, checked
from mcp_optimizer.runtime.outgoing import is_this_machine
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_AGAIN = 10.0
"""Seconds between two fetches for the sake of an unknown key, or after a failure."""

_OLD = 900.0
"""Seconds after which the keys are fetched again in the background, so that a withdrawn one is noticed."""

_MOST_KEYS = 100
_LONGEST_ID = 500
_KINDS = ("RSA", "EC", "OKP")


class KeySet:
    """The keys of one issuer, by id."""

    def __init__(self, issuer: TokenIssuer, web: Web, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._web = web.named_by(issuer.issuer, issuer.jwks_url or "")
        self._clock = clock
        self._keys: dict[str, Mapping[str, Any]] | None = None
        self._ready: dict[tuple[str, str], PyJWK] = {}
        self._fetched_at = self._tried_again_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._fetches = BackgroundTasks(logger, "Cannot fetch keys", expected=(CannotVerify,))

    async def key(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """The key that a token names, for its algorithm; None if there is none. Raises CannotVerify."""
        if key_id is not None and len(key_id) > _LONGEST_ID:
            return None
        if self._keys is None:
            await self._first()
        elif self._clock() - self._fetched_at > _OLD and self._may_try_again():
            self._fetch()
        if (found := self._find(key_id, algorithm)) is None and self._may_try_again():
            self._fetch()
        if found is None and self._fetching is not None and not self._fetching.done():
            # If that fails, nobody knows whether the key exists.
            await asyncio.shield(self._fetching)
            found = self._find(key_id, algorithm)
        return found

    async def close(self) -> None:
        await self._fetches.close()

    async def _first(self) -> None:
        if (self._fetching is None or self._fetching.done()) and self._clock() - self._fetched_at <= _AGAIN:
            raise CannotVerify("The keys of the token's issuer cannot be read. Try again shortly.")
        if self._fetching is None or self._fetching.done():
            self._fetched_at = self._clock()
            self._fetching = self._fetches.spawn(self._read())
        await asyncio.shield(self._fetching)

    def _may_try_again(self) -> bool:
        is_over = self._fetching is None or self._fetching.done()
        return is_over and self._clock() - self._tried_again_at > _AGAIN

    def _fetch(self) -> None:
        self._tried_again_at = self._clock()
        self._fetching = self._fetches.spawn(self._read())

    def _find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        keys = self._keys or {}
        if key_id is None:
            # Without an id there must be no choice.
            key_id = next(iter(keys)) if len(keys) == 1 else ""
        found = keys.get(key_id)
        if found is None or found.get("alg", algorithm) != algorithm:
            return None
        if (ready := self._ready.get((key_id, algorithm))) is None:
            try:
                ready = PyJWK(dict(found), algorithm)
            except (PyJWTError, ValueError, TypeError, KeyError):
                return None
            self._ready[key_id, algorithm] = ready
        return ready

    async def _read(self) -> None:
        name = self._issuer.name
        try:
            reply = await self._web.get(self._issuer.jwks_url or await self._address())
            keys = _usable(reply.body.get("keys")) if reply.status == 200 else {}
        except (Unanswered, LoginFailed) as error:
            logger.warning("The keys of the token issuer %r cannot be read: %s", name, error)
            raise CannotVerify("The keys of the token's issuer cannot be read. Try again shortly.") from error
        if not keys:
            logger.warning("The token issuer %r has no keys that can be used (HTTP status %d)", name, reply.status)
            raise CannotVerify("The token's issuer has no keys that can be used.")
        self._keys, self._ready, self._fetched_at = keys, {}, self._clock()

    async def _address(self) -> str:
        """Where the issuer's metadata say the keys are: RFC 8414, then OpenID, in the protocol's order."""
        # In a thread: half of the SDK comes with it.
        sdk = await asyncio.to_thread(import_module, "mcp.client.auth.utils")
        issuer = self._issuer.issuer
        for place in sdk.build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
            reply = await self._web.get(place)
            if reply.status >= 500:
                raise Unanswered(f"it answers with HTTP status {reply.status}")
            if reply.status == 200 and reply.body:
                if reply.body.get("issuer") != issuer:
                    raise LoginFailed("its metadata are those of another issuer")
                address = reply.body.get("jwks_uri")
                if isinstance(address, str):
                    # An issuer elsewhere must not point us at this machine.
                    checked(address, allows_this_machine=is_this_machine(checked(issuer)))
                    return address
        raise LoginFailed("it does not describe itself: set its jwks_url")


def _usable(keys: object) -> dict[str, Mapping[str, Any]]:
    """Public keys for signatures, by id."""
    listed = keys[:_MOST_KEYS] if isinstance(keys, list) else []
    return {
        str(key.get("kid", "")): key
        for key in listed
        if isinstance(key, dict)
        and key.get("kty") in _KINDS
        and key.get("use", "sig") == "sig"
        and isinstance(key.get("kid", ""), str)
    }
