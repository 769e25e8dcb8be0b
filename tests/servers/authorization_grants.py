"""What Authlib leaves to an authorization server: how grants and endpoints find and keep what they give out.

Everything here gets at `Records` through `self.server`, the `LoginServer` of `authorization_server.py`.
"""

from __future__ import annotations

from typing import Any

import httpx2
import jwt
from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidRequestError, UnauthorizedClientError
from authlib.oauth2.rfc6749.grants import (
    AuthorizationCodeGrant,
    BaseGrant,
    ClientCredentialsGrant,
    RefreshTokenGrant,
    TokenEndpointMixin,
)
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9207 import IssuerParameter
from joserfc.jwk import KeySet

from tests.servers.authorization_records import SCOPES, Code, RegisteredClient, Token
from tests.servers.signed_tokens import ID_JAG_TYPE

BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
REFRESH_TOKEN = "urn:ietf:params:oauth:token-type:refresh_token"


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
            code,
            client_id,
            redirect_uri,
            request.scope,
            audience,
            *challenge,
            user=str(request.user),
            nonce=sent.get("nonce", ""),
        )
        self.server.records.counts["authorizations"] += 1

    def query_authorization_code(self, code: str, client: ClientMixin) -> Code | None:
        found: Code | None = self.server.records.codes.get(code)
        return found if found and found.client_id == client.get_client_id() else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        if not self.server.switches.codes_last:
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


class ForPerson(BaseGrant, TokenEndpointMixin):
    """A grant that presents what another authorization, of a person, has given."""

    request: Any

    def validate_client(self) -> None:
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(str(self.GRANT_TYPE)):
            raise UnauthorizedClientError
        self.request.client = client

    def saved_token(self) -> dict[str, Any]:
        scope = self.request.payload.scope or SCOPES[0]
        token: dict[str, Any] = self.generate_token(user=self.request.user, scope=scope, include_refresh_token=False)
        self.server.save_token(token, self.request)
        return token


class ExchangeGrant(ForPerson):
    """RFC 8693: a token of a person's, which we have signed, for one of a server."""

    GRANT_TYPE = EXCHANGE

    def validate_token_request(self) -> None:
        self.validate_client()
        sent = self.request.payload.data
        if sent.get("subject_token_type") not in (ACCESS_TOKEN, ID_TOKEN):
            raise InvalidRequestError("only access and ID tokens are exchanged")
        if sent.get("requested_token_type") not in (ACCESS_TOKEN, ID_JAG):
            raise InvalidRequestError("only access tokens and identity assertions are given")
        try:
            claims = self.server.signer.read(sent.get("subject_token", ""))
        except jwt.PyJWTError:
            raise InvalidRequestError("the subject_token is not valid") from None
        place = target(self.request)
        if self.server.switches.exchange_once:
            self._note(claims.get("jti", ""), place)
        self.request.user = claims["sub"]
        self.validate_requested_scope()

    def create_token_response(self) -> Any:
        if self.request.payload.data["requested_token_type"] == ID_JAG:
            return 200, self._assertion(self.request.payload.data), self.TOKEN_RESPONSE_HEADER
        token = self.saved_token()
        returns = self.server.switches.exchange_returns
        token["issued_token_type"] = REFRESH_TOKEN if returns == "other" else ACCESS_TOKEN
        if returns == "same":
            token["access_token"] = self.request.payload.data["subject_token"]
        return 200, token, self.TOKEN_RESPONSE_HEADER

    def _assertion(self, sent: dict[str, str]) -> dict[str, Any]:
        said = {"sub": self.request.user, "aud": sent["audience"], "resource": sent["resource"]}
        switches, records = self.server.switches, self.server.records
        if switches.exchange_audience:
            said["aud"] = switches.exchange_audience
        given = self.server.signer.assertion(**said, client_id=switches.assertion_client)
        records.counts["assertions"] += 1
        records.secrets.append(given)
        kind = ACCESS_TOKEN if switches.exchange_returns == "other" else ID_JAG
        return {"access_token": given, "issued_token_type": kind, "token_type": "N_A", "expires_in": 300}

    def _note(self, name: str, place: str) -> None:
        if (name, place) in self.server.records.exchanged:
            self.server.records.counts["replays"] += 1
            raise InvalidGrantError("this token was exchanged before")
        self.server.records.exchanged.add((name, place))


class AssertionGrant(ForPerson):
    """RFC 7523 with an identity assertion (ID-JAG) of the one issuer that is trusted."""

    GRANT_TYPE = BEARER

    def validate_token_request(self) -> None:
        self.validate_client()
        sent = self.request.payload.data
        claims = self._checked(sent.get("assertion", ""))
        if claims["client_id"] != self.request.client.get_client_id() or claims["resource"] != target(self.request):
            raise InvalidGrantError("the assertion is for another client or resource")
        if (claims["jti"], "") in self.server.records.exchanged:
            self.server.records.counts["replays"] += 1
            raise InvalidGrantError("this assertion was used before")
        self.server.records.exchanged.add((claims["jti"], ""))
        self.request.user = claims["sub"]
        self.validate_requested_scope()

    def create_token_response(self) -> Any:
        return 200, self.saved_token(), self.TOKEN_RESPONSE_HEADER

    def _checked(self, assertion: str) -> dict[str, Any]:
        trusted = self.server.options.trusts
        try:
            header = jwt.get_unverified_header(assertion)
            keys = httpx2.get(f"{trusted}/keys", trust_env=False).raise_for_status().json()["keys"]
            key = next(key for key in keys if key["kid"] == header.get("kid"))
            if header.get("typ") != ID_JAG_TYPE:
                raise InvalidGrantError("this is no identity assertion")
            claims: dict[str, Any] = jwt.decode(
                assertion, jwt.PyJWK(key), ["ES256"], audience=self.server.issuer, issuer=trusted
            )
        except (jwt.PyJWTError, StopIteration):
            raise InvalidGrantError("the assertion is not valid") from None
        return claims


def target(request: OAuth2Request, given: Code | Token | None = None, redirect_uri: str | None = None) -> str:
    """The `resource` of a request, which must be that of the code or token it presents (RFC 8707). A sign-in at the
    client itself has none.
    """
    sent = request.payload.data if request.payload else {}
    resource = str(sent.get("resource") or sent.get("audience") or "")
    if not resource and "openid" in str(given.scope if given else sent.get("scope", "")).split():
        return ""
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
