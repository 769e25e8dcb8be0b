"""Verifies JWTs of one issuer: signature, issuer, audience, times. Loaded only if the settings name an issuer.

The issuer's public keys (its JWKS) are fetched when they are first needed and when a token names an unknown one: one
fetch at a time, and at most one in ten seconds for unknown keys. While fetching fails, the previous keys stay in use.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import jwt
from jwt import PyJWK
from jwt.exceptions import PyJWTError
from jwt.types import Options

from mcp_optimizer.access.callers.claims import LEEWAY, Recent, check_audience, check_times, hash_of, principal_of
from mcp_optimizer.access.callers.keys import CannotVerify, Rejected
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, checked
from mcp_optimizer.runtime.outgoing import is_this_machine
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_AGAIN = 10.0
"""Seconds between two fetches because of unknown keys, or after a failure."""

_OLD = 900.0
"""Age in seconds from which the keys are fetched again in the background, to notice withdrawn ones."""

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
        """The key that a token names, for its algorithm; None if the issuer has no such key. Raises CannotVerify."""
        if key_id is not None and len(key_id) > _LONGEST_ID:
            return None
        if self._keys is None:
            await self._first()
        elif self._clock() - self._fetched_at > _OLD and self._may_try_again():
            self._fetch()
        if (found := self._find(key_id, algorithm)) is None and self._may_try_again():
            self._fetch()
        if found is None and self._fetching is not None and not self._fetching.done():
            # If this fetch fails, it raises CannotVerify: the key may exist.
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
            # Without an id, the key must be the only one.
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
        """The address of the keys in the issuer's metadata: RFC 8414, then OpenID, in the protocol's order."""
        # In a thread, because this imports half of the SDK.
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
                    # A remote issuer must not direct us to this machine.
                    checked(address, allows_this_machine=is_this_machine(checked(issuer)))
                    return address
        raise LoginFailed("it does not describe itself: set its jwks_url")


def _usable(keys: object) -> dict[str, Mapping[str, Any]]:
    """The public signature keys in a JWKS, by id."""
    listed = keys[:_MOST_KEYS] if isinstance(keys, list) else []
    return {
        str(key.get("kid", "")): key
        for key in listed
        if isinstance(key, dict)
        and key.get("kty") in _KINDS
        and key.get("use", "sig") == "sig"
        and isinstance(key.get("kid", ""), str)
    }


_REMEMBERED = 10.0
"""Seconds for which a verified token is cached."""

_ONLY_SIGNATURE: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""The claims are checked by `claims`, in the same way for all tokens."""

_reader = jwt.PyJWT({"enforce_minimum_key_length": True})


class SignedTokens:
    """Verifies the JWTs of one issuer."""

    def __init__(self, issuer: TokenIssuer, keys: KeySet) -> None:
        self._issuer = issuer
        self._keys = keys
        self._recent: Recent[tuple[Principal, float]] = Recent()

    async def principal(self, token: str, resource: str, _address: str = "") -> Principal:
        """The token's holder; raises Rejected, ScopesMissing or CannotVerify."""
        audience = self._issuer.audience or resource
        key = hash_of(token, audience)
        if (known := self._recent.get(key)) is not None and time.time() < known[1]:
            return known[0]
        claims = await self._verified(token)
        if claims.get("iss") != self._issuer.issuer:
            raise Rejected("The token is of another issuer.")
        check_audience(claims, audience)
        ends = check_times(claims, time.time(), needs_end=True)
        principal = principal_of(claims, self._issuer)
        self._recent.put(key, (principal, ends + LEEWAY), _REMEMBERED)
        return principal

    async def close(self) -> None:
        await self._keys.close()

    async def _verified(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError):
            raise Rejected("The token cannot be read.") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._issuer.algorithms:
            raise Rejected("The token is signed with an algorithm that is not accepted.")
        if key_id is not None and not isinstance(key_id, str):
            raise Rejected("The token cannot be read.")
        signer = await self._keys.key(key_id, algorithm)
        if signer is None:
            raise Rejected("The token is signed with a key that its issuer does not have.")
        try:
            return _reader.decode(token, signer, algorithms=[algorithm], options=_ONLY_SIGNATURE)
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise Rejected("The token's signature is not valid.") from None


def unverified_issuer(token: str) -> str | None:
    """The issuer that a JWT claims, used only to choose its verifier; None if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    said = claims.get("iss") if isinstance(claims, dict) else None
    return said if isinstance(said, str) else None
