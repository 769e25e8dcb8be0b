"""An issuer of tokens for tests: real keys, real signatures, and its addresses behind a mock transport."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from mcp_optimizer.access.callers.signed_tokens import KeySet, SignedTokens
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.identity.web import Web

ISSUER = "https://login.example"
RESOURCE = "https://gateway.example/mcp"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())

Body = bytes | AsyncIterator[bytes]


def public(key: PrivateKeyTypes, kid: str) -> dict[str, Any]:
    """A public key as a JWKS has it."""
    if isinstance(key, rsa.RSAPrivateKey):
        return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims, changed; None removes one."""
    now = int(time.time())
    said = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": now + 60, "iat": now, "scope": "mcp:read", **changes}
    return {name: value for name, value in said.items() if value is not None}


def token(key: Any = EC_KEY, kid: str | None = "ec", algorithm: str = "ES256", **changes: Any) -> str:
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode(claims(**changes), key, algorithm, headers=headers)


class IssuerWeb:
    """What the issuer's addresses answer. `asked` has every request."""

    def __init__(self) -> None:
        self.keys: list[Any] = [public(EC_KEY, "ec"), public(RSA_KEY, "rsa")]
        self.metadata: dict[str, Any] = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        self.status = 200
        self.asked: list[httpx2.Request] = []
        self.said: dict[str, Any] | Callable[[], Body] = {"active": False}
        """About a token, to whoever asks."""
        self.web = Web(httpx2.MockTransport(self._answer))
        self.now = 1_000.0

    def clock(self) -> float:
        return self.now

    def fetches(self) -> int:
        return sum(request.url.path == "/keys" for request in self.asked)

    def verifier(self, **said: Any) -> SignedTokens:
        issuer = token_issuer(**said)
        return SignedTokens(issuer, KeySet(issuer, self.web, self.clock))

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        body: Any = {"/keys": {"keys": self.keys}, "/ask": self.said}.get(request.url.path)
        if request.url.path == "/.well-known/openid-configuration":
            body = self.metadata
        if body is None:
            return httpx2.Response(404, content=_sent(b"{}"))
        sent = body() if callable(body) else json.dumps(body).encode()
        return httpx2.Response(self.status, content=_sent(sent) if isinstance(sent, bytes) else sent)


async def _sent(body: bytes) -> AsyncIterator[bytes]:
    yield body


def token_issuer(**said: Any) -> TokenIssuer:
    return TokenIssuer(**{"name": "corp", "issuer": ISSUER, **said})
