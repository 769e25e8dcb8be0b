"""The signing keys of the tests' authorization server: access tokens as JWTs (RFC 9068), and the JWKS for them."""

from __future__ import annotations

import secrets
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.servers.authorization_records import Token

ID_JAG_TYPE = "oauth-id-jag+jwt"


class Signer:
    """One key at a time; `renew` replaces it, as an issuer does now and then."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self.renew()

    def renew(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._kid = secrets.token_hex(4)

    def jwks(self) -> dict[str, Any]:
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self._kid, "use": "sig", "alg": "ES256"}]}

    def access_token(self, token: Token, user: str) -> str:
        return self.sign(
            aud=token.audience,
            sub=user,
            client_id=token.client_id,
            scope=token.scope,
            exp=int(token.expires_at),
            jti=secrets.token_hex(8),
        )

    def id_token(self, **claims: Any) -> str:
        """An ID token (OpenID Connect); None leaves a claim out."""
        now = int(time.time())
        said = {"iss": self._issuer, "iat": now, "exp": now + 60, **claims}
        return self._encoded({name: value for name, value in said.items() if value is not None}, "JWT")

    def read(self, token: str) -> dict[str, Any]:
        """The claims of a token with our signature that is still valid; raises jwt.PyJWTError."""
        claims: dict[str, Any] = jwt.decode(token, self._key.public_key(), ["ES256"], options={"verify_aud": False})
        return claims

    def sign(self, **claims: Any) -> str:
        """A token that says this; None leaves a claim out."""
        now = int(time.time())
        said = {"iss": self._issuer, "iat": now, "exp": now + 60, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return self._encoded(said, "at+jwt")

    def assertion(self, **claims: Any) -> str:
        """An identity assertion (ID-JAG) for another authorization server."""
        now = int(time.time())
        said = {"iss": self._issuer, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}
        return self._encoded(said, ID_JAG_TYPE)

    def _encoded(self, claims: dict[str, Any], kind: str) -> str:
        return jwt.encode(claims, self._key, "ES256", {"kid": self._kid, "typ": kind})
