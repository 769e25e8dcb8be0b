"""Verifies JWTs of one issuer: signature, issuer, audience, times. Loaded only where the settings name an issuer."""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import Any

import jwt
from jwt.exceptions import PyJWTError
from jwt.types import Options

from mcp_optimizer.callers.claims import LEEWAY, check_audience, check_times, principal_of
from mcp_optimizer.callers.key_sets import KeySet
from mcp_optimizer.callers.outcomes import Rejected
from mcp_optimizer.callers.recent import Recent, hash_of
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.domain.token_issuers import TokenIssuer

_REMEMBERED = 10.0
"""Seconds for which a verified token is not verified again."""

_ONLY_SIGNATURE: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""What a token says is checked by `claims`, in one way for all tokens."""

_reader = jwt.PyJWT({"enforce_minimum_key_length": True})


class SignedTokens:
    """The JWTs of one issuer."""

    def __init__(self, issuer: TokenIssuer, keys: KeySet) -> None:
        self._issuer = issuer
        self._keys = keys
        self._recent: Recent[tuple[Principal, float]] = Recent()

    async def principal(self, token: str, resource: str, _address: str = "") -> Principal:
        """Whose token this is; raises Rejected, ScopesMissing or CannotVerify."""
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
    """Who a JWT says made it, which only says whom to believe about it; None if it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    said = claims.get("iss") if isinstance(claims, dict) else None
    return said if isinstance(said, str) else None
