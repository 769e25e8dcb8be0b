"""Servers and authorization servers that lie, and people who log in or out at the wrong moment."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import NO_AUTH, AuthKind, AuthSpec, ServerSpec, Transport
from mcp_optimizer.identity.challenges import Challenge, with_more
from mcp_optimizer.identity.discovery import discovered
from mcp_optimizer.identity.login import SHARED, Login
from mcp_optimizer.identity.oauth_client import ClientId, Provider, Tokens, registered
from mcp_optimizer.identity.server_login import ServerLogin
from mcp_optimizer.identity.store import InMemory, LoginStore
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.upstream.request_errors import LoginNeeded

URL = "https://mcp.example/mcp"
ISSUER = "https://login.example"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "code_challenge_methods_supported": ["S256"],
}
INSUFFICIENT = 'Bearer error="insufficient_scope", scope="{}"'

Answer = tuple[int, Any]


async def _sent(body: bytes) -> AsyncIterator[bytes]:
    yield body


class Provided:
    """Authorization servers and metadata, by address."""

    def __init__(self, **changes: Any) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = {
            "https://mcp.example/.well-known/oauth-protected-resource/mcp": (
                200,
                {"resource": URL, "authorization_servers": [ISSUER]},
            ),
            f"{ISSUER}/.well-known/oauth-authorization-server": (200, {**METADATA, **changes}),
        }
        self.asked: list[httpx2.Request] = []
        self.web = Web(httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        found = self.answers.get(str(request.url).partition("?")[0], (404, {}))
        status, body = found() if callable(found) else found
        return httpx2.Response(status, content=_sent(json.dumps(body).encode()))

    def forms(self) -> list[str]:
        return [request.content.decode() for request in self.asked if request.method == "POST"]


def offer_nothing() -> Any:
    raise AssertionError("nobody is asked")


def server_login(provided: Provided, rows: InMemory | None = None, auth: AuthSpec = NO_AUTH) -> ServerLogin:
    spec = ServerSpec(name="notes", transport=Transport.HTTP, url=URL, auth=auth)
    return ServerLogin(spec, LoginStore(spec, SHARED, rows or InMemory()), provided.web, offer_nothing)


def made(access: str = "a1", expires_in: float = -1.0) -> Login:
    tokens = Tokens(access, "r1", time.time() + expires_in)
    return Login(ISSUER, f"{ISSUER}/token", URL, ClientId("me"), tokens=tokens)


async def found(provided: Provided, url: str = URL, challenge: Challenge | None = None) -> Provider:
    return await discovered(url, NO_AUTH, challenge or Challenge(), provided.web)


async def test_no_token_is_made_for_a_server_elsewhere_without_https() -> None:
    with pytest.raises(LoginFailed, match="must use https"):
        await found(Provided(), "http://mcp.example/mcp")


@pytest.mark.parametrize("key", ["token_endpoint", "registration_endpoint", "authorization_endpoint"])
@pytest.mark.parametrize("address", ["http://127.0.0.1:8000/logins/github/out", "https://localhost/x", "http://[::1]/"])
async def test_a_server_elsewhere_names_no_address_on_this_machine(key: str, address: str) -> None:
    with pytest.raises(LoginFailed, match="on this machine"):
        await found(Provided(**{key: address}))


@pytest.mark.parametrize("named", ["http://127.0.0.1:9/x", "https://localhost:99999/x", "http://login.example/x", "é"])
async def test_an_address_of_metadata_that_may_not_be_asked_is_passed_over(named: str) -> None:
    provided = Provided()
    assert (await found(provided, challenge=Challenge(resource_metadata=named))).issuer == ISSUER
    assert all(request.url.host in ("mcp.example", "login.example") for request in provided.asked)


HOST_PLACE = "https://mcp.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize("said", ["https://mcp.example/", "https://mcp.example", "https://mcp.example/mc"])
async def test_one_server_of_a_host_gets_no_token_for_the_host(said: str) -> None:
    provided = Provided()
    provided.answers[f"{HOST_PLACE}/mcp"] = (200, {"resource": said, "authorization_servers": [ISSUER]})
    with pytest.raises(LoginFailed, match="for another server"):
        await found(provided)
    own = "https://mcp.example/mine.json"
    provided.answers[own] = (200, {"resource": said, "authorization_servers": [ISSUER]})
    with pytest.raises(LoginFailed, match="for another server"):
        await found(provided, challenge=Challenge(resource_metadata=own))


@pytest.mark.parametrize("host", ["0177.0.0.1", "0x7f.1"])
async def test_an_address_that_no_client_understands_is_no_crash(host: str) -> None:
    with pytest.raises((LoginFailed, Unanswered)):
        await Web().named_by(URL).get(f"https://{host}:9/x")


async def test_metadata_on_this_machine_are_asked_for_at_the_server_alone() -> None:
    provided = Provided()
    named = Challenge(resource_metadata="http://127.0.0.1:9/x")
    assert (await found(provided, "http://127.0.0.1:3000/mcp", named)).issuer == "http://127.0.0.1:3000"
    assert {request.url.port for request in provided.asked} == {3000}


async def test_what_a_host_says_of_itself_at_its_own_place_holds_for_its_servers() -> None:
    provided = Provided()
    provided.answers.pop(f"{HOST_PLACE}/mcp")
    provided.answers[HOST_PLACE] = (200, {"resource": "https://mcp.example/", "authorization_servers": [ISSUER]})
    assert (await found(provided)).resource.rstrip("/") == "https://mcp.example"


async def test_what_stands_in_the_query_of_a_server_is_told_to_nobody() -> None:
    provided = Provided()
    provided.answers.pop("https://mcp.example/.well-known/oauth-protected-resource/mcp")
    provided.answers["https://mcp.example/.well-known/oauth-authorization-server"] = (
        200,
        {**METADATA, "issuer": "https://mcp.example"},
    )
    assert (await found(provided, f"{URL}?api_key=SECRET")).resource == URL


async def test_a_strangers_text_in_an_error_is_short() -> None:
    provided = Provided()
    provided.answers["https://mcp.example/.well-known/oauth-protected-resource/mcp"] = (
        200,
        {"resource": f"https://other.example/{'x' * 100_000}", "authorization_servers": [ISSUER]},
    )
    with pytest.raises(LoginFailed) as failed:
        await found(provided)
    assert len(str(failed.value)) < 500


@pytest.mark.parametrize("given", ["\ud800", "", 7, "x" * 10_000, None])
async def test_a_client_id_that_cannot_be_sent_is_no_registration(given: Any) -> None:
    provided = Provided()
    provided.answers[f"{ISSUER}/register"] = (201, {"client_id": given})
    with pytest.raises(LoginFailed):
        await registered(await found(provided), "http://localhost/callback", provided.web)


@pytest.mark.parametrize("status", [302, 403, 404, 408, 500])
async def test_an_answer_that_is_no_word_of_the_authorization_server_ends_no_login(status: int) -> None:
    provided = Provided()
    provided.answers[f"{ISSUER}/token"] = (status, {})
    login = server_login(provided)
    await login.keep(made())
    with pytest.raises(Exception, match=str(status)):
        await login.headers()
    known = await login.current()
    assert known is not None
    assert not known.is_over


@pytest.mark.parametrize("refresh", ["\ud800", 7, "x" * 100_000, None])
async def test_a_refresh_token_that_cannot_be_sent_is_not_kept(refresh: Any) -> None:
    provided = Provided()
    provided.answers[f"{ISSUER}/token"] = (200, {"access_token": "a2", "refresh_token": refresh, "expires_in": 60})
    login = server_login(provided)
    await login.keep(made())
    assert (await login.headers())["authorization"] == "Bearer a2"


async def test_a_logout_during_a_refresh_stays_one() -> None:
    provided, rows = Provided(), InMemory()
    login = server_login(provided, rows)
    await login.keep(made())
    store = LoginStore(ServerSpec(name="notes", transport=Transport.HTTP, url=URL), SHARED, rows)

    def meanwhile() -> Answer:
        rows.rows.clear()
        return 200, {"access_token": "a2", "refresh_token": "r2", "expires_in": 60}

    provided.answers[f"{ISSUER}/token"] = meanwhile
    assert await login.headers() == {}
    assert await store.read() is None
    assert await login.current() is None


@pytest.mark.parametrize("answer", [(200, {"access_token": "a2", "expires_in": 60}), (400, {"error": "invalid_grant"})])
async def test_a_login_during_a_refresh_of_the_old_one_stays(answer: Answer) -> None:
    provided, rows = Provided(), InMemory()
    login = server_login(provided, rows)
    await login.keep(made())
    new = replace(made("new", expires_in=600))
    spec = ServerSpec(name="notes", transport=Transport.HTTP, url=URL)
    other = LoginStore(spec, SHARED, rows)

    def meanwhile() -> Answer:
        rows.rows[next(iter(rows.rows))] = new.to_json()
        return answer

    provided.answers[f"{ISSUER}/token"] = meanwhile
    assert (await login.headers())["authorization"] == "Bearer new"
    assert await other.read() == new


async def test_a_logout_elsewhere_is_not_undone_by_a_call_that_needs_more() -> None:
    provided, rows = Provided(), InMemory()
    login = server_login(provided, rows)
    await login.keep(made(expires_in=600))
    rows.rows.clear()
    with pytest.raises(LoginNeeded):
        await login.refused(403, INSUFFICIENT.format("write"), await login.headers())
    assert rows.rows == {}


async def test_a_call_that_was_refused_with_the_old_token_is_made_with_the_new_one() -> None:
    login = server_login(Provided())
    await login.keep(made("old", expires_in=600))
    sent = await login.headers()
    await login.keep(made("new", expires_in=600))
    assert await login.refused(403, INSUFFICIENT.format("write"), sent)
    assert await login.refused(401, "Bearer", sent)


async def test_an_account_takes_no_scope_beyond_those_of_its_entry() -> None:
    provided = Provided()
    provided.answers[f"{ISSUER}/token"] = (200, {"access_token": "a1", "expires_in": 600})
    auth = AuthSpec(AuthKind.CLIENT_CREDENTIALS, "me", "secret", scopes=("read",), issuer=ISSUER)
    login = server_login(provided, auth=auth)
    headers = await login.headers()
    assert not await login.refused(403, INSUFFICIENT.format("admin"), headers)
    assert all("admin" not in form for form in provided.forms())


async def test_the_scopes_that_calls_needed_do_not_grow_without_end() -> None:
    login = server_login(Provided())
    await login.keep(made(expires_in=600))
    for number in range(100):
        wanted = " ".join(f"s{number}-{each}" for each in range(50))
        with pytest.raises(LoginNeeded):
            await login.refused(403, INSUFFICIENT.format(wanted), await login.headers())
    known = await login.current()
    assert known is not None
    assert len(known.wanted) <= 100
    assert len(with_more(("a",) * 5, (f"b{number}" for number in range(1_000)))) == 100


def test_an_error_with_many_texts_takes_no_time_to_be_redacted() -> None:
    tokens = {"token": "t" * 1_200, "refresh token": "r" * 1_200}
    redactor = Redactor(ServerSpec(name="s", transport=Transport.HTTP, url=URL), lambda: tokens)
    began = time.process_time()
    assert redactor.value([f"{'t' * 1_200} {number}" for number in range(5_000)])[-1] == "[redacted: token] 4999"
    assert time.process_time() - began < 2
