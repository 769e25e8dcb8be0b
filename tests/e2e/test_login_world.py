"""The authorization server and the protected server of the tests, driven over plain HTTP as a client would."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwk, jwt
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.servers.login_app import CALLBACK, PUBLIC, App, public_app
from tests.servers.login_world import LoginWorld, login_world
from tests.waiting import until


@pytest.fixture(scope="module")
def shared_world() -> Iterator[LoginWorld]:
    with login_world(seconds=60) as world:
        yield world


@pytest.fixture
def world(shared_world: LoginWorld) -> Iterator[LoginWorld]:
    yield shared_world
    shared_world.control(auto=False, deny=False, iss="", fail_refresh=0, delay_refresh=0)


@pytest.fixture(scope="module")
def bare_world() -> Iterator[LoginWorld]:
    """Tokens of one second, no rotation, no registration, and metadata that says nothing about PKCE."""
    with login_world(seconds=1, rotate=False, registration=False, pkce_metadata=False) as world:
        yield world


async def test_a_code_with_its_verifier_becomes_a_token_that_opens_the_server(world: LoginWorld) -> None:
    app = public_app(world)
    redirect = app.redirected()
    assert (redirect["state"], redirect["iss"]) == ("the state", world.issuer)
    assert redirect["code"].startswith("co-SECRET-")
    tokens = app.exchange(redirect["code"]).json()
    assert tokens["access_token"].startswith("at-SECRET-")
    assert tokens["refresh_token"].startswith("rt-SECRET-")
    assert (tokens["expires_in"], tokens["scope"], tokens["token_type"]) == (60, "mcp:read", "Bearer")
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    async with (
        httpx2.AsyncClient(headers=bearer, trust_env=False) as http,
        Client(streamable_http_client(world.server_url, http_client=http)) as client,
    ):
        content = (await client.call_tool("whoami", {})).content[0].model_dump()
    assert json.loads(content["text"]) == {"tool": "whoami", "client_id": app.client_id, "scopes": ["mcp:read"]}


def test_every_secret_is_on_record(world: LoginWorld) -> None:
    app = public_app(world)
    before = world.counts()
    redirect = app.redirected()
    tokens = app.exchange(redirect["code"]).json()
    assert {redirect["code"], app.verifier, tokens["access_token"], tokens["refresh_token"]} <= set(world.secrets())
    after = world.counts()
    assert {name: after[name] - count for name, count in before.items() if after[name] != count} == {
        "authorizations": 1,
        "code_requests": 1,
        "codes_exchanged": 1,
    }


def test_a_wrong_verifier_is_refused(world: LoginWorld) -> None:
    app = public_app(world)
    response = app.exchange(app.redirected()["code"], secrets.token_urlsafe(48))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_grant")


def test_a_code_works_once(world: LoginWorld) -> None:
    app = public_app(world)
    code = app.redirected()["code"]
    assert app.exchange(code).status_code == 200
    assert app.exchange(code).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"resource": None}, "invalid_target"),
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
    ],
)
def test_a_wrong_authorization_request_is_redirected_with_its_error(
    world: LoginWorld, changes: dict[str, str | None], error: str
) -> None:
    redirect = public_app(world).redirected(**changes)
    assert (redirect["error"], redirect["state"], redirect["iss"]) == (error, "the state", world.issuer)


def test_an_unknown_redirect_address_is_never_followed(world: LoginWorld) -> None:
    response = world.http.get(public_app(world).address(redirect_uri="http://127.0.0.1:8766/callback"))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


def test_the_page_is_skipped_the_user_denies_and_the_issuer_lies_on_request(world: LoginWorld) -> None:
    app = public_app(world)
    assert world.http.get(app.address()).status_code == 200
    assert world.http.get(app.address(auto="1")).status_code == 302
    world.control(auto=True, iss="http://localhost:1")
    assert world.http.get(app.address()).status_code == 302
    assert app.redirected()["iss"] == "http://localhost:1"
    world.control(deny=True, iss="")
    redirect = app.redirected()
    assert (redirect["error"], redirect["iss"]) == ("access_denied", world.issuer)


def test_a_refresh_rotates_and_reuse_revokes_the_login(world: LoginWorld) -> None:
    app = public_app(world)
    first, other = app.log_in(), app.log_in()
    second = app.refresh(first["refresh_token"]).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert app.is_let_in(second["access_token"])
    assert app.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert not app.is_let_in(second["access_token"])
    assert app.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
    assert app.refresh(other["refresh_token"]).status_code == 200


def test_a_refresh_fails_and_waits_on_request(world: LoginWorld) -> None:
    app = public_app(world)
    tokens = app.log_in()
    world.control(fail_refresh=503)
    assert app.refresh(tokens["refresh_token"]).status_code == 503
    world.control(fail_refresh=0, delay_refresh=0.2)
    started = time.monotonic()
    assert app.refresh(tokens["refresh_token"]).status_code == 200
    assert time.monotonic() - started >= 0.2


def test_a_refresh_for_another_resource_is_refused(world: LoginWorld) -> None:
    app = public_app(world)
    sent = {"refresh_token": app.log_in()["refresh_token"], "resource": "http://localhost:1/mcp"}
    assert app.token(grant_type="refresh_token", **sent).json()["error"] == "invalid_target"


def test_tokens_end_when_they_are_revoked(world: LoginWorld) -> None:
    app = public_app(world)
    tokens, other = app.log_in(), app.log_in()
    form = {"client_id": app.client_id, "token": tokens["refresh_token"]}
    assert world.http.post(f"{world.issuer}/revoke", data=form).status_code == 200
    assert not app.is_let_in(tokens["access_token"])
    assert app.is_let_in(other["access_token"])
    world.control(expire_all=True)
    assert not app.is_let_in(other["access_token"])
    renewed = app.refresh(other["refresh_token"]).json()
    world.control(revoke_all=True)
    assert app.refresh(renewed["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_client_with_a_secret_must_show_it(world: LoginWorld) -> None:
    metadata = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "client_secret_post"}
    told = world.http.post(f"{world.issuer}/register", json=metadata).json()
    assert told["client_secret"].startswith("cs-SECRET-")
    app = App(world, told["client_id"])
    sent = {"redirect_uri": CALLBACK, "code_verifier": app.verifier, "code": app.redirected()["code"]}
    assert app.token(grant_type="authorization_code", **sent).json()["error"] == "invalid_client"
    tokens = app.token(grant_type="authorization_code", client_secret=told["client_secret"], **sent).json()
    assert "refresh_token" not in tokens
    assert app.is_let_in(tokens["access_token"])


def test_registration_refuses_what_the_server_does_not_support(world: LoginWorld) -> None:
    metadata = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "tls_client_auth"}
    response = world.http.post(f"{world.issuer}/register", json=metadata)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")


def test_an_account_logs_in_with_its_secret(world: LoginWorld) -> None:
    told = world.add_client(grant_types=["client_credentials"], token_endpoint_auth_method="client_secret_basic")
    form = {"grant_type": "client_credentials", "resource": world.server_url, "scope": "mcp:write mcp:read"}
    account = told["client_id"], told["client_secret"]
    tokens = world.http.post(f"{world.issuer}/token", data=form, auth=account).json()
    assert App(world, account[0]).is_let_in(tokens["access_token"])


def test_an_account_logs_in_with_its_private_key(world: LoginWorld) -> None:
    key = jwk.ECKey.import_key(ec.generate_private_key(ec.SECP256R1()))
    public = {"keys": [key.as_dict(private=False)]}
    method = {"token_endpoint_auth_method": "private_key_jwt", "jwks": public}
    client_id = world.add_client(grant_types=["client_credentials"], **method)["client_id"]
    claims = {"iss": client_id, "sub": client_id, "aud": world.issuer, "exp": int(time.time()) + 60, "jti": "1"}
    form = {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": jwt.encode({"alg": "ES256"}, claims, key),
    }
    app = App(world, client_id)
    tokens = app.token(grant_type="client_credentials", **form).json()
    assert app.is_let_in(tokens["access_token"])
    assert app.token(grant_type="client_credentials", **form).json()["error"] == "invalid_client"


def test_the_protected_server_names_its_metadata_and_scope(world: LoginWorld) -> None:
    metadata = world.server_url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    challenge = world.http.post(world.server_url, json={}).headers["WWW-Authenticate"]
    assert challenge == f'Bearer resource_metadata="{metadata}", scope="mcp:read"'
    described = world.http.get(metadata).json()
    assert (described["resource"], described["authorization_servers"]) == (world.server_url, [world.issuer])
    refused = App(world, "").call("whoami", "at-SECRET-guessed")
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_a_token_for_another_server_is_refused(world: LoginWorld) -> None:
    told = world.add_client(grant_types=["client_credentials"], token_endpoint_auth_method="client_secret_post")
    sent = {"client_secret": told["client_secret"], "resource": "http://localhost:1/mcp"}
    app = App(world, told["client_id"])
    tokens = app.token(grant_type="client_credentials", **sent).json()
    assert app.call("whoami", tokens["access_token"]).status_code == 401


def test_writing_needs_a_scope_of_its_own(world: LoginWorld) -> None:
    app = public_app(world)
    refused = app.call("write_note", app.log_in()["access_token"])
    assert refused.status_code == 403
    assert 'error="insufficient_scope", scope="mcp:write"' in refused.headers["WWW-Authenticate"]
    writer = public_app(world, scope="mcp:read mcp:write")
    assert writer.is_let_in(writer.log_in()["access_token"], "write_note")


async def test_access_tokens_expire_and_refresh_tokens_do_not(bare_world: LoginWorld) -> None:
    app = App(bare_world, bare_world.add_client(**PUBLIC)["client_id"])
    tokens = app.log_in()
    assert app.is_let_in(tokens["access_token"])
    await until(lambda: not app.is_let_in(tokens["access_token"]))
    renewed = app.refresh(tokens["refresh_token"]).json()
    assert "refresh_token" not in renewed
    assert app.is_let_in(renewed["access_token"])
    assert app.refresh(tokens["refresh_token"]).status_code == 200


def test_metadata_leaves_out_what_is_switched_off(bare_world: LoginWorld, world: LoginWorld) -> None:
    well_known = "/.well-known/oauth-authorization-server"
    full = world.http.get(world.issuer + well_known).json()
    bare = bare_world.http.get(bare_world.issuer + well_known).json()
    assert (full["issuer"], bare["issuer"]) == (world.issuer, bare_world.issuer)
    assert full.keys() - bare.keys() == {"registration_endpoint", "code_challenge_methods_supported"}
    assert bare_world.http.post(f"{bare_world.issuer}/register", json={}).status_code == 404
