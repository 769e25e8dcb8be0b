"""What Authlib leaves to an authorization server: how grants and endpoints find and keep what they give out.

Everything here gets at `Records` through `self.server`, the `LoginServer` of `authorization_server.py`.
"""

from __future__ import annotations

from typing import Any

from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.errors import InvalidRequestError
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, ClientCredentialsGrant, RefreshTokenGrant
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9207 import IssuerParameter
from joserfc.jwk import KeySet

from tests.servers.authorization_records import Code, RegisteredClient, Token


class InvalidTarget(OAuth2Error):
    error = "invalid_target"


class OnlyS256(CodeChallenge):
    def validate_code_challenge(self, grant: Any, redirect_uri: Any) -> None:
        if grant.request.payload.data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("PKCE with S256 is required")
        super().validate_code_challenge(grant, redirect_uri)


class CodeGrant(AuthorizationCodeGrant):
    def validate_authorization_request(self) -> str:
        redirect_uri = super().validate_authorization_request()
        target(self.request, redirect_uri=redirect_uri)
        return redirect_uri

    def generate_authorization_code(self) -> str:
        return str(self.server.records.new_secret("co"))

    def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
        assert request.client is not None
        assert request.payload is not None
        sent, audience = request.payload.data, target(request)
        challenge = sent["code_challenge"], sent["code_challenge_method"]
        client_id, redirect_uri = request.client.get_client_id(), sent.get("redirect_uri", "")
        self.server.records.codes[code] = Code(
            code, client_id, redirect_uri, request.scope, audience, *challenge, user=str(request.user)
        )
        self.server.records.counts["authorizations"] += 1

    def query_authorization_code(self, code: str, client: ClientMixin) -> Code | None:
        found: Code | None = self.server.records.codes.get(code)
        return found if found and found.client_id == client.get_client_id() else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del self.server.records.codes[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> str:
        return authorization_code.user

    def validate_token_request(self) -> None:
        super().validate_token_request()
        target(self.request, self.request.authorization_code)


class RefreshGrant(RefreshTokenGrant):
    def authenticate_refresh_token(self, refresh_token: str) -> Any:
        token: Token | None = self.server.records.refresh_tokens.get(refresh_token)
        if token and token.used:
            token.login.revoked = True
            self.server.records.counts["reuses"] += 1
        return token if token and not token.login.revoked else None

    def authenticate_user(self, refresh_token: Token) -> str:
        return refresh_token.login.user

    def validate_token_request(self) -> None:
        super().validate_token_request()
        target(self.request, self.request.refresh_token)

    def revoke_old_credential(self, refresh_token: Any) -> None:
        refresh_token.used = self.INCLUDE_NEW_REFRESH_TOKEN


class OwnAccountGrant(ClientCredentialsGrant):
    def validate_token_request(self) -> None:
        super().validate_token_request()
        target(self.request)


def target(request: OAuth2Request, given: Code | Token | None = None, redirect_uri: str | None = None) -> str:
    """The `resource` of a request, which must be that of the code or token it presents (RFC 8707)."""
    resource = request.payload.data.get("resource", "") if request.payload else ""
    if not resource or (given and given.audience != resource):
        raise InvalidTarget("resource is missing or another one", redirect_uri=redirect_uri)
    return resource


class Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request: Any) -> bool:
        return True

    def get_server_metadata(self) -> Any:
        return self.server.metadata

    def generate_client_info(self, request: Any) -> dict[str, Any]:
        return {}

    def save_client(self, client_info: Any, client_metadata: dict[str, Any], request: Any) -> dict[str, Any]:
        self.server.records.counts["registrations"] += 1
        told: dict[str, Any] = self.server.records.add_client(client_metadata)
        return told

    def generate_client_registration_info(self, client: Any, request: Any) -> dict[str, Any]:
        """What `save_client` returned goes into the response: whether there is a secret depends on the metadata."""
        return dict(client)


class Revocation(RevocationEndpoint):
    def query_token(self, token_string: str, token_type_hint: str | None) -> Any:
        return self.server.records.find(token_string)

    def revoke_token(self, token: Token, request: Any) -> None:
        """A refresh token takes the whole login with it, an access token only itself."""
        self.server.records.counts["revocations"] += 1
        if request.form["token"] in self.server.records.refresh_tokens:
            token.login.revoked = True
        else:
            token.expires_at = 0


class Introspection(IntrospectionEndpoint):
    """Answers everybody, because a test has nothing to keep from its own machine."""

    def authenticate_endpoint_client(self, request: Any) -> None:
        return None

    def check_permission(self, token: Any, client: Any, request: Any) -> bool:
        return True

    def query_token(self, token_string: str, token_type_hint: str | None) -> Any:
        return self.server.records.access_tokens.get(token_string)

    def introspect_token(self, token: Token) -> dict[str, Any]:
        return {
            "client_id": token.client_id,
            "scope": token.scope,
            "aud": token.audience,
            "exp": token.expires_at,
            "iss": self.server.issuer,
            "sub": token.login.user,
        }


class PrivateKeyAssertion(JWTBearerClientAssertion):
    def __init__(self, audiences: list[str]) -> None:
        super().__init__()
        self.audiences = audiences
        self.seen: set[str] = set()

    def get_audiences(self) -> list[str]:
        return self.audiences

    def validate_jti(self, claims: Any, jti: str) -> bool:
        is_new = jti not in self.seen
        self.seen.add(jti)
        return is_new

    def authenticate_client(self, client: RegisteredClient) -> RegisteredClient:
        """Whether the client may use this method is asked by the caller too, under the method's proper name."""
        return client

    def resolve_client_public_key(self, client: RegisteredClient) -> Any:
        return KeySet.import_key_set(client.metadata["jwks"])


class NamesIssuer(IssuerParameter):
    def __init__(self, server: Any) -> None:
        self.server = server

    def get_issuer(self) -> str:
        return str(self.server.switches.iss or self.server.issuer)
