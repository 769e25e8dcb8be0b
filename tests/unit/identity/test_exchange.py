"""A caller's token is exchanged for one of the server: what is asked, cached and refused, and what no server gets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest

from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.config.serverfile.parser import given_servers
from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.identity.caller_tokens import CallerTokens
from mcp_optimizer.identity.exchange import Exchanges, TokenExchange, Turns
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.upstream.request_errors import LoginNeeded
from tests.waiting import until

URL = "https://mcp.example/mcp"
ISSUER = "https://login.example"
CLIENT = {"issuer": ISSUER, "client_id": "gateway", "client_secret": "gateway-secret"}
ACCESS = "urn:ietf:params:oauth:token-type:access_token"
ELSEWHERE = "https://auth.crm.example"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


def described_as(issuer: str) -> dict[str, Any]:
    endpoints = {"authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token"}
    return {"issuer": issuer, **endpoints, "token_endpoint_auth_methods_supported": ["client_secret_post"]}


METADATA = described_as(ISSUER)
MANAGED = {"issuer": ELSEWHERE, "client_id": "there", "client_secret": "secret-there"}

Answer = tuple[int, Any]


def entry(**exchange: Any) -> ServerSpec:
    auth = {"principal": "caller", "exchange": {**CLIENT, **exchange}}
    [spec] = given_servers({"crm": {"url": URL, "auth": auth}}, {})
    assert not spec.problem, spec.problem
    return spec


def caller(name: str, ends_in: float = 600.0) -> Principal:
    return Principal(f"token:{name}", f"corp:{name}", claims={"sub": name, "exp": time.time() + ends_in})


# Made when tests are collected, which may be long before they run.
ADA, BOB = caller("ada", 86_400.0), caller("bob", 86_400.0)


async def _sent(body: bytes) -> AsyncIterator[bytes]:
    yield body


class Provider:
    """An authorization server that gives `TOKEN for SUBJECT`, and the exchanges at it."""

    def __init__(self, answer: Callable[[dict[str, str]], Answer] | None = None) -> None:
        self.forms: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.life: int | None = 600
        self.metadata: dict[str, Any] = METADATA
        self.answer = answer or self.given
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.now = 1_000.0
        self.exchanges = Exchanges(Web(httpx2.MockTransport(self._answered)), lambda: self.now)

    def given(self, form: dict[str, str], **changes: Any) -> Answer:
        subject = form.get("subject_token", form.get("assertion", ""))
        body = {"access_token": f"at{len(self.forms)}-for-{subject}", "token_type": "Bearer", "expires_in": self.life}
        return 200, {"issued_token_type": ACCESS, **body, **changes}

    async def _answered(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            issuer = str(request.url).partition("/.well-known")[0]
            described = self.metadata if issuer == ISSUER else described_as(issuer)
            return httpx2.Response(200, content=_sent(json.dumps(described).encode()))
        self.asked.append(str(request.url))
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        self.forms.append(form)
        await self.may_answer.wait()
        status, body = self.answer(form)
        return httpx2.Response(status, content=_sent(json.dumps(body).encode()))

    def exchange(self, principal: Principal = ADA, spec: ServerSpec | None = None, token: str = "") -> TokenExchange:
        self.exchanges.note(principal, token or f"{principal.name}-own")
        return self.exchanges.of(spec or entry(), principal)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    yield made
    made.may_answer.set()
    await made.exchanges.close()


def refusal(_form: dict[str, str]) -> Answer:
    return 400, {"error": "invalid_target"}


async def test_a_token_is_exchanged_as_the_rfc_says_and_sent_until_shortly_before_it_ends(provider: Provider) -> None:
    mine = provider.exchange()
    assert await mine.headers() == {"authorization": "Bearer at1-for-corp:ada-own"}
    assert await mine.headers() == {"authorization": "Bearer at1-for-corp:ada-own"}
    assert provider.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "corp:ada-own",
            "subject_token_type": ACCESS,
            "requested_token_type": ACCESS,
            "resource": URL,
            "client_id": "gateway",
            "client_secret": "gateway-secret",
        }
    ]


async def test_audience_resource_and_scopes_are_those_of_the_entry(provider: Provider) -> None:
    await provider.exchange(spec=entry(audience="crm", scopes=["read", "write"])).headers()
    await provider.exchange(spec=entry(audience="crm", resource=f"{URL}/x")).headers()
    first, second = provider.forms
    assert (first["audience"], first["scope"], "resource" in first) == ("crm", "read write", False)
    assert (second["audience"], second["resource"]) == ("crm", f"{URL}/x")


async def test_entra_is_asked_on_behalf_of_the_caller(provider: Provider) -> None:
    spec = entry(type="on-behalf-of", scopes=["api://crm/.default"])
    assert await provider.exchange(spec=spec).headers() == {"authorization": "Bearer at1-for-corp:ada-own"}
    [form] = provider.forms
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["requested_token_use"] == "on_behalf_of"
    assert (form["assertion"], form["scope"]) == ("corp:ada-own", "api://crm/.default")
    assert not {"resource", "audience", "subject_token"} & form.keys()


async def test_calls_at_once_share_one_exchange_and_other_callers_do_not_wait(provider: Provider) -> None:
    bob = provider.exchange(BOB)
    await bob.headers()
    provider.may_answer.clear()
    ada = provider.exchange(ADA)
    calls = [asyncio.create_task(ada_headers(ada)) for _ in range(10)]
    await until(lambda: len(provider.forms) == 2)
    assert await bob.headers() == {"authorization": "Bearer at1-for-corp:bob-own"}
    provider.may_answer.set()
    assert set(await asyncio.gather(*calls)) == {"Bearer at2-for-corp:ada-own"}
    assert len(provider.forms) == 2


async def ada_headers(exchange: TokenExchange) -> str:
    return (await exchange.headers())["authorization"]


async def test_each_caller_and_server_has_a_token_of_its_own(provider: Provider) -> None:
    other = replace(entry(), name="desk", url="https://desk.example/mcp")
    sent = [
        (await provider.exchange(principal, spec).headers())["authorization"]
        for principal in (ADA, BOB)
        for spec in (entry(), other)
    ]
    assert len(set(sent)) == 4
    assert [form["resource"] for form in provider.forms] == [URL, other.url] * 2


async def test_a_token_that_soon_ends_is_replaced_while_it_still_serves(provider: Provider) -> None:
    mine = provider.exchange()
    provider.life = 0
    await mine.headers()
    provider.life = None
    assert await mine.headers() == {"authorization": "Bearer at2-for-corp:ada-own"}, "it was over"
    provider.life = 600
    assert await mine.headers() == {"authorization": "Bearer at2-for-corp:ada-own"}, "an unstated life is five minutes"
    assert len(provider.forms) == 2


async def test_a_refusal_is_a_state_and_the_next_token_of_the_caller_is_tried(provider: Provider) -> None:
    mine = provider.exchange()
    provider.answer = refusal
    with pytest.raises(LoginNeeded, match=r"could not be exchanged: .* refused \(invalid_target\)"):
        await mine.headers()
    with pytest.raises(LoginNeeded, match="invalid_target"):
        await mine.headers()
    assert len(provider.forms) == 1, "the same token is not tried again at once"
    provider.answer = provider.given
    assert not await mine.has_another()
    provider.now += 2
    assert await mine.has_another(), "an operator may have put things right"
    provider.now -= 2
    waiting = asyncio.create_task(mine.until_login())
    provider.exchanges.note(caller("ada", 60), "sooner")
    await asyncio.wait_for(waiting, 10)
    assert await mine.headers() == {"authorization": "Bearer at2-for-sooner"}


async def test_a_provider_that_is_down_is_asked_again_after_a_pause(provider: Provider) -> None:
    mine = provider.exchange()
    provider.answer = lambda _form: (503, {})
    for _ in range(3):
        with pytest.raises(Unanswered, match=r"could not be exchanged: .* HTTP status 503"):
            await mine.headers()
    assert len(provider.forms) == 1
    provider.answer = provider.given
    provider.now += 2
    assert await mine.headers()
    assert len(provider.forms) == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"access_token": "corp:ada-own"}, "gave the token back that it got"),
        ({"issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "gave no access token"),
        ({"token_type": "N_A"}, "gave no bearer token"),
        ({"access_token": "two words"}, "gave no bearer token"),
        ({"access_token": "x" * 20_000}, "gave no bearer token"),
    ],
)
async def test_what_is_no_token_of_the_server_is_not_sent(
    provider: Provider, changes: dict[str, Any], why: str
) -> None:
    provider.answer = lambda form: provider.given(form, **changes)
    with pytest.raises(LoginNeeded, match=why) as refused:
        await provider.exchange().headers()
    assert "corp:ada-own" not in str(refused.value)


async def test_a_refused_token_is_replaced_once_and_then_the_entry_is_wrong(provider: Provider) -> None:
    mine = provider.exchange()
    earlier = await mine.headers()
    assert await mine.refused(401, "Bearer", earlier)
    first = await mine.headers()
    assert first == {"authorization": "Bearer at2-for-corp:ada-own"}
    with pytest.raises(LoginFailed, match=r"refuses the token that https://login.example gave for this caller"):
        await mine.refused(401, "Bearer", first)
    assert await mine.refused(401, "Bearer", earlier), "another call has got a new one"
    assert len(provider.forms) == 2
    with pytest.raises(LoginFailed, match=r"more permissions .* \(write\)"):
        await mine.refused(403, 'Bearer error="insufficient_scope", scope="write"', first)
    assert not await mine.refused(403, "Bearer", first)


async def test_a_caller_without_a_token_is_told_so_and_no_login_is_offered(provider: Provider) -> None:
    mine = provider.exchanges.of(entry(), ADA)
    assert "exchanges the caller's token" in await mine.missing()
    with pytest.raises(LoginNeeded, match="send one with the next request"):
        await mine.headers()
    with pytest.raises(ConfigurationError):
        async with mine.offered():
            pass
    provider.exchanges.note(ADA, "ada-own")
    assert await mine.missing() == ""
    await asyncio.wait_for(mine.until_login(), 10)
    for key in (Principal("key:1", "key:ci"), Principal("local", "local")):
        assert "uses a key" in entry().missing_of(key)
    assert entry().missing_of(ADA) == ""


async def test_tokens_are_known_as_secrets_and_shown_nowhere(provider: Provider) -> None:
    mine = provider.exchange()
    sent = (await mine.headers())["authorization"].removeprefix("Bearer ")
    said = Redactor(entry(), mine.secrets).text(f"got {sent} for corp:ada-own with gateway-secret")
    assert not [one for one in (sent, "corp:ada-own", "gateway-secret") if one in said]
    shown = f"{entry()!r} {mine!r} {mine.spec!r}"
    assert not [one for one in (sent, "corp:ada-own", "gateway-secret") if one in shown]


def managed(**exchange: Any) -> ServerSpec:
    auth = {"principal": "caller", **MANAGED, "exchange": {"type": "id-jag", **CLIENT, **exchange}}
    [spec] = given_servers({"crm": {"url": URL, "auth": {**auth, "scopes": ["read"]}}}, {})
    assert not spec.problem, spec.problem
    return spec


def asserted(provider: Provider, **changes: Any) -> Callable[[dict[str, str]], Answer]:
    """Gives an assertion for a caller's token, and a token for an assertion."""

    def answer(form: dict[str, str]) -> Answer:
        if "assertion" in form:
            return provider.given(form, issued_token_type=None)
        return 200, {"access_token": "assertion", "issued_token_type": ID_JAG, "token_type": "N_A", **changes}

    return answer


async def test_an_assertion_of_who_calls_is_exchanged_at_the_server_s_authorization_server(provider: Provider) -> None:
    provider.answer = asserted(provider)
    spec = managed(client_secret=None, subject_token_type="id_token")
    assert await provider.exchange(spec=spec).headers() == {"authorization": "Bearer at2-for-assertion"}
    assert provider.asked == [f"{ISSUER}/token", f"{ELSEWHERE}/token"]
    assert provider.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "corp:ada-own",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "requested_token_type": ID_JAG,
            "audience": ELSEWHERE,
            "resource": URL,
            "client_id": "gateway",
        },
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "assertion",
            "scope": "read",
            "resource": URL,
            "client_id": "there",
            "client_secret": "secret-there",
        },
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issued_token_type": ACCESS}, "gave no identity assertion"),
        ({"issued_token_type": None}, "gave no identity assertion"),
        ({"access_token": "two words"}, "gave no identity assertion"),
        ({"access_token": "corp:ada-own"}, "gave the token back that it got"),
    ],
)
async def test_what_is_no_assertion_goes_nowhere(provider: Provider, changes: dict[str, Any], why: str) -> None:
    provider.answer = asserted(provider, **changes)
    with pytest.raises(LoginNeeded, match=why):
        await provider.exchange(spec=managed()).headers()
    assert provider.asked == [f"{ISSUER}/token"]


@pytest.mark.parametrize("issuer", ["https://other.example", f"{ISSUER}/"])
async def test_metadata_of_another_issuer_are_not_used(provider: Provider, issuer: str) -> None:
    provider.metadata = {**METADATA, "issuer": issuer}
    with pytest.raises(LoginNeeded, match="calls itself"):
        await provider.exchange().headers()
    assert not provider.forms


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://127.0.0.1:9/token", "an address on this machine"),
        ("https://localhost/token", "an address on this machine"),
        ("http://login.example/token", "must use https"),
        ("https://ada:word@login.example/token", "cannot be used"),
    ],
)
@pytest.mark.parametrize("is_managed", [False, True])
async def test_no_token_is_sent_to_an_endpoint_that_metadata_may_not_name(
    provider: Provider, endpoint: str, why: str, is_managed: bool
) -> None:
    provider.metadata = {**METADATA, "token_endpoint": endpoint}
    with pytest.raises(LoginNeeded) as refused:
        await provider.exchange(spec=managed() if is_managed else entry()).headers()
    assert why in str(refused.value)
    assert not provider.asked


@pytest.mark.parametrize("status", [302, 403, 404, 429, 500])
async def test_what_is_no_decision_of_the_provider_is_tried_again(provider: Provider, status: int) -> None:
    mine = provider.exchange()
    provider.answer = lambda _form: (status, {})
    with pytest.raises(Unanswered, match=f"HTTP status {status}"):
        await mine.headers()
    provider.answer = provider.given
    provider.now += 2
    assert await mine.headers() == {"authorization": "Bearer at2-for-corp:ada-own"}


async def test_no_metadata_are_needed_for_a_token_url(provider: Provider) -> None:
    provider.metadata = {}
    spec = entry(issuer=None, token_url=f"{ISSUER}/token")
    assert await provider.exchange(spec=spec).headers()
    with pytest.raises(LoginNeeded, match="must use https"):
        await provider.exchange(spec=entry(token_url="http://login.example/token")).headers()


async def test_of_a_caller_s_tokens_the_one_that_ends_last_is_held_and_forgotten_when_the_caller_is_silent() -> None:
    now = 0.0
    tokens = CallerTokens(lambda: now, most=2)
    try:
        assert tokens.note(caller("ada", 60), "first")
        assert not tokens.note(caller("ada", 60), "first")
        assert tokens.note(caller("ada", 600), "longer")
        assert not tokens.note(caller("ada", 60), "first")
        assert tokens.of("token:ada") == "longer"
        tokens.refused("token:ada", "longer")
        assert tokens.note(caller("ada", 60), "first"), "any token is better than a refused one"
        now = 200.0
        tokens.note(caller("bob"), "bob's")
        tokens.note(caller("ada", 60), "first")
        tokens.note(caller("cyd"), "cyd's")
        assert [tokens.of(f"token:{name}") for name in ("ada", "bob", "cyd")] == ["first", "", "cyd's"]
        now = 501.0
        tokens.sweep()
        assert len(tokens) == 0
        assert "first" not in repr(vars(tokens))
    finally:
        tokens.close()


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"exchange": "yes"}, '"auth.exchange" must be an object'),
        ({"exchange": {}}, 'needs "issuer" or "token_url"'),
        ({"exchange": {"issuer": ISSUER}}, 'needs the gateway\'s own client there: "client_id"'),
        ({"exchange": {"issuer": ISSUER, "client_id": "c"}}, '"client_secret"'),
        ({"exchange": CLIENT, "principal": "shared"}, 'write "principal": "caller"'),
        ({"exchange": CLIENT, "type": "oauth"}, '"auth.type" and "auth.exchange" both say'),
        ({"exchange": CLIENT, "client_id": "c"}, '"auth.client_id" and "auth.exchange" both say'),
        ({"exchange": {**CLIENT, "type": "saml"}}, '"auth.exchange.type" must be one of'),
        ({"exchange": {**CLIENT, "issuer": "login"}}, '"auth.exchange.issuer" must be a URL'),
        ({"exchange": {**CLIENT, "audiense": "crm"}}, 'did you mean "audience"'),
        ({"exchange": {**CLIENT, "type": "id-jag"}}, "needs the server's authorization server beside it"),
        ({**MANAGED, "issuer": None, "exchange": {**CLIENT, "type": "id-jag"}}, '"issuer"'),
        ({**MANAGED, "pkce": "assume", "exchange": {**CLIENT, "type": "id-jag"}}, '"auth.pkce" and "auth.exchange"'),
        ({"exchange": {**CLIENT, "subject_token_type": "saml2"}}, "must be one of access_token, id_token, jwt"),
        ({"exchange": {**CLIENT, "type": "on-behalf-of"}}, 'names the server by "scopes"'),
        ({"exchange": {**CLIENT, "type": "on-behalf-of", "scopes": "a", "audience": "crm"}}, 'takes no "audience"'),
    ],
)
def test_what_is_wrong_with_an_exchange_names_the_key(auth: dict[str, Any], why: str) -> None:
    [spec] = given_servers({"crm": {"url": URL, "auth": auth}}, {})
    assert why in spec.problem
    assert "gateway-secret" not in spec.problem


def test_another_provider_or_audience_is_another_server() -> None:
    assert entry().fingerprint == entry(client_secret="another").fingerprint
    assert len({one.fingerprint for one in (entry(), entry(audience="crm"), entry(issuer="https://b.example"))}) == 3
    assert entry().is_of_each_caller


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "only callers of a gateway over HTTP have one: serve with --http"),
        ({"http": "127.0.0.1:0"}, "name their issuer as [[token_issuers]]"),
        ({"http": "127.0.0.1:0", "token_issuers": [{"name": "corp", "issuer": ISSUER}]}, ""),
    ],
)
def test_where_callers_have_no_tokens_the_entry_cannot_be_used(settings: dict[str, Any], why: str) -> None:
    servers = {"crm": {"url": URL, "auth": {"exchange": CLIENT}}}
    [spec] = server_specs(Settings(**settings), {"mcpServers": servers})
    assert why in spec.problem
    assert bool(spec.problem) is bool(why)


async def test_a_provider_that_takes_too_long_is_given_up_and_its_turn_is_free_again() -> None:
    turns = Turns(most=1, longest=0.05)
    for _ in range(2):
        with pytest.raises(Unanswered, match=r"https://login\.example does not answer within 0\.05 s"):
            async with turns.at(ISSUER):
                await asyncio.Event().wait()
