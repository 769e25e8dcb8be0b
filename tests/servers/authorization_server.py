"""An OAuth 2 authorization server for tests of logging in, written with Authlib. Its user allows everything.

python -m tests.servers.authorization_server --port P [--seconds 3] [--rotate] [--no-registration]
    [--no-pkce-metadata] [--methods none,client_secret_basic,client_secret_post,private_key_jwt] [--signed]
    [--trusts ISSUER]

Prints its issuer once it listens (port 0: any free one). Codes need PKCE with S256; authorization and token requests
need `resource`, which becomes the audience. With `--rotate` a refresh token works once, and using it again revokes
every token of that login. A redirect address must equal a registered one, port included. Access tokens live for
`--seconds`, and are JWTs with `--signed`; codes live until they are used, refresh tokens until they are revoked.
Identity assertions (ID-JAG) are given to clients that may exchange tokens, and taken from the issuer that it
`--trusts`. POST /control sets `Switches` and does what `Endpoints.control` lists; GET returns the counts of `Records`
and every secret ever given.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
from dataclasses import replace
from typing import Any

import uvicorn
from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import AuthorizationServer, JsonRequest
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload, JsonPayload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tests.servers.authorization_grants import (
    BEARER,
    EXCHANGE,
    AssertionGrant,
    CodeGrant,
    ExchangeGrant,
    Introspection,
    NamesIssuer,
    OnlyS256,
    OwnAccountGrant,
    PrivateKeyAssertion,
    RefreshGrant,
    Registration,
    Revocation,
    target,
)
from tests.servers.authorization_records import OPENID, SCOPES, USER, Login, Records, Switches, Token
from tests.servers.signed_tokens import Signer

METHODS = "none,client_secret_basic,client_secret_post,private_key_jwt"
COUNTED = {"authorization_code": "codes_exchanged", "refresh_token": "refreshes", "client_credentials": "own_tokens"}
COUNTED |= {EXCHANGE: "exchanges", BEARER: "asserted"}
DELAYED = {"authorization_code": "code", "refresh_token": "refresh", EXCHANGE: "exchange"}
SENT_SECRETS = ("code_verifier", "client_assertion", "subject_token", "assertion")
PAGE = "<!doctype html><title>Allow?</title><form method=post><button>Allow</button></form>"


class Answer(Response):
    """Has the `location` that Authlib's RFC 9207 extension changes."""

    @property
    def location(self) -> str | None:
        return self.headers.get("Location")

    @location.setter
    def location(self, value: str) -> None:
        self.headers["Location"] = value


class FormRequest(OAuth2Request):
    def __init__(self, request: Request, form: dict[str, str]) -> None:
        super().__init__(request.method, str(request.url), headers=request.headers)
        self.sent = form
        self.payload = BasicOAuth2Payload({**request.query_params, **form})

    @property
    def form(self) -> dict[str, str]:
        return self.sent


class Metadata(JsonPayload):
    def __init__(self, sent: dict[str, Any]) -> None:
        self.sent = sent

    @property
    def data(self) -> dict[str, Any]:
        return self.sent


class LoginServer(AuthorizationServer):
    """Authlib's authorization server on Starlette's requests, with records in memory."""

    def __init__(self, issuer: str, options: argparse.Namespace) -> None:
        super().__init__(scopes_supported=[*SCOPES, *OPENID])
        self.issuer, self.options = issuer, options
        self.records, self.switches, self.signer = Records(), Switches(), Signer(issuer)
        self.metadata = metadata(issuer, options)
        methods = options.methods.split(",")
        grants = {"TOKEN_ENDPOINT_AUTH_METHODS": methods}
        rotates = {"INCLUDE_NEW_REFRESH_TOKEN": options.rotate}
        self.register_grant(type("CodeGrant", (CodeGrant,), grants), [OnlyS256()])
        self.register_grant(type("RefreshGrant", (RefreshGrant,), grants | rotates))
        own = {"TOKEN_ENDPOINT_AUTH_METHODS": [method for method in methods if method != "none"]}
        self.register_grant(type("OwnAccountGrant", (OwnAccountGrant,), own))
        self.register_grant(type("ExchangeGrant", (ExchangeGrant,), own))
        if options.trusts:
            self.register_grant(type("AssertionGrant", (AssertionGrant,), own))
        self.register_endpoint(type("Revocation", (Revocation,), {"CLIENT_AUTH_METHODS": methods}))
        self.register_endpoint(Introspection)
        registration: Any = Registration  # an endpoint, though not by its type
        self.register_endpoint(registration)
        self.register_client_auth_method("private_key_jwt", PrivateKeyAssertion([issuer, f"{issuer}/token"]))
        self.register_extension(NamesIssuer(self))
        self.register_token_generator(
            "default",
            BearerTokenGenerator(
                lambda **_: self.records.new_secret("at"),
                lambda **_: self.records.new_secret("rt"),
                lambda *_: options.seconds,
            ),
        )

    def query_client(self, client_id: str) -> Any:
        return self.records.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        assert request.client is not None
        assert request.payload is not None
        login = request.refresh_token.login if request.refresh_token else Login(str(request.user or USER))
        expires_at = time.time() + self.options.seconds
        is_exchange = request.payload.grant_type == EXCHANGE
        code = getattr(request, "authorization_code", None)
        audience = (is_exchange and self.switches.exchange_audience) or target(request, code)
        saved = Token(request.client.get_client_id(), token["scope"], audience, expires_at, login)
        if self.options.signed:
            token["access_token"] = self.signer.access_token(saved, login.user)
            self.records.secrets.append(token["access_token"])
        if code is not None and "openid" in code.scope.split():
            said = {"aud": code.client_id, "sub": login.user, "nonce": code.nonce, **self.switches.id_claims}
            token["id_token"] = self.switches.id_token or self.signer.id_token(**said)
            self.records.secrets.append(token["id_token"])
        self.records.access_tokens[token["access_token"]] = saved
        if "refresh_token" in token:
            self.records.refresh_tokens[token["refresh_token"]] = replace(saved)
        self.records.counts[COUNTED[request.payload.grant_type]] += 1

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Nobody listens."""

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        assert isinstance(request, FormRequest)
        return request

    def create_json_request(self, request: Any) -> JsonRequest:
        assert isinstance(request, JsonRequest)
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        content = JSONResponse(body).body if isinstance(body, dict) else body
        return Answer(content, status, dict(headers))


def metadata(issuer: str, options: argparse.Namespace) -> AuthorizationServerMetadata:
    """RFC 8414, checked by Authlib."""
    said: dict[str, Any] = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "revocation_endpoint": f"{issuer}/revoke",
        "introspection_endpoint": f"{issuer}/introspect",
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials", EXCHANGE, BEARER],
        "token_endpoint_auth_methods_supported": options.methods.split(","),
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "revocation_endpoint_auth_methods_supported": options.methods.split(","),
        "revocation_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "authorization_response_iss_parameter_supported": True,
    }
    if options.registration:
        said["registration_endpoint"] = f"{issuer}/register"
    if options.signed:
        said["jwks_uri"] = f"{issuer}/keys"
    if options.pkce_metadata:
        said["code_challenge_methods_supported"] = ["S256"]
    checked = AuthorizationServerMetadata(said)
    checked.validate()
    return checked


class Endpoints:
    """The addresses of a `LoginServer`."""

    def __init__(self, server: LoginServer) -> None:
        self.server, self.records = server, server.records
        self.authlib: Any = server  # Authlib leaves its methods without types

    def routes(self) -> list[Route]:
        routes = [
            Route("/.well-known/oauth-authorization-server", self.well_known),
            Route("/authorize", self.authorize, methods=["GET", "POST"]),
            Route("/token", self.token, methods=["POST"]),
            Route("/revoke", self.endpoint("revocation"), methods=["POST"]),
            Route("/introspect", self.endpoint("introspection"), methods=["POST"]),
            Route("/keys", self.keys),
            Route("/control", self.counts, methods=["GET"]),
            Route("/control", self.control, methods=["POST"]),
        ]
        if self.server.options.registration:
            routes.append(Route("/register", self.register, methods=["POST"]))
        return routes

    async def form(self, request: Request) -> FormRequest:
        sent = {name: str(value) for name, value in (await request.form()).items()}
        self.records.secrets += [sent[name] for name in SENT_SECRETS if name in sent]
        return FormRequest(request, sent)

    async def well_known(self, request: Request) -> Response:
        return JSONResponse(self.server.metadata)

    async def keys(self, request: Request) -> Response:
        self.records.counts["key_fetches"] += 1
        return JSONResponse(self.server.signer.jwks())

    async def authorize(self, request: Request) -> Any:
        asked, server = await self.form(request), self.server
        try:
            grant = self.authlib.get_consent_grant(asked, USER)
        except OAuth2Error as error:
            refused = server.handle_error_response(asked, error)
            NamesIssuer(server).add_issuer_parameter(server, refused)
            return refused
        if request.method == "GET" and not (server.switches.auto or request.query_params.get("auto") == "1"):
            return HTMLResponse(PAGE)
        user = None if server.switches.deny else server.switches.user
        return server.create_authorization_response(asked, user, grant)

    async def token(self, request: Request) -> Any:
        asked = await self.form(request)
        if (kind := DELAYED.get(asked.form.get("grant_type", ""))) is not None:
            self.records.counts[f"{kind}_requests"] += 1
            # A delay that is set anew holds for what already waits, too.
            since = time.monotonic()
            while time.monotonic() - since < getattr(self.server.switches, f"delay_{kind}"):
                await asyncio.sleep(0.02)
            if status := getattr(self.server.switches, f"fail_{kind}"):
                self.records.counts["put_off"] += 1
                return Response("not now", status_code=status)
        return self.server.create_token_response(asked)

    def endpoint(self, name: str) -> Any:
        async def answer(request: Request) -> Any:
            return self.authlib.create_endpoint_response(name, await self.form(request))

        return answer

    async def register(self, request: Request) -> Any:
        asked = JsonRequest("POST", str(request.url), request.headers)
        asked.payload = Metadata(await request.json())
        return self.authlib.create_endpoint_response("client_registration", asked)

    async def counts(self, request: Request) -> Response:
        return JSONResponse({"counts": self.records.counts, "secrets": self.records.secrets})

    async def control(self, request: Request) -> Response:
        """Besides switches: `revoke_all`, `expire_all` (access tokens), `add_client` (metadata as in RFC 7591),
        `renew_keys`, and `sign` (claims), which returns a `token`.
        """
        asked = await request.json()
        told = self.records.add_client(asked.pop("add_client")) if "add_client" in asked else {}
        if asked.pop("renew_keys", False):
            self.server.signer.renew()
        if "sign" in asked:
            told = {"token": self.server.signer.sign(**asked.pop("sign"))}
        if asked.pop("revoke_all", False):
            self.records.revoke_all()
        if asked.pop("expire_all", False):
            self.records.expire_all()
        self.server.switches = replace(self.server.switches, **asked)
        return JSONResponse(told)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rotate", action="store_true")
    parser.add_argument("--no-registration", dest="registration", action="store_false")
    parser.add_argument("--no-pkce-metadata", dest="pkce_metadata", action="store_false")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--signed", action="store_true")
    parser.add_argument("--trusts", default="")
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    issuer = f"http://localhost:{listening.getsockname()[1]}"
    app = Starlette(routes=Endpoints(LoginServer(issuer, options)).routes())
    print(issuer, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    main()
