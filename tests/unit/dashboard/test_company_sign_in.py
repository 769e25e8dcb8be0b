"""People sign in to the dashboard at their company's provider, which is a real authorization server in a process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_optimizer.access.callers.company_sign_in import CompanySignIn
from mcp_optimizer.config.serverfile.parser import given_servers
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.dashboard.sign_ins import LASTS
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.tables import sign_in as sign_in_rows
from mcp_optimizer.domain.caller import Role
from mcp_optimizer.domain.credentials import DashboardLogin, TokenIssuer
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.identity import web as web_module
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from tests.servers.login_world import LoginWorld, issuer_world
from tests.unit.dashboard.test_dashboard import Elements, assert_harmless
from tests.unit.dashboard.visiting import Gateway, another_gateway, gateway

pytestmark = [pytest.mark.process, pytest.mark.slow]

PUBLIC = "http://localhost:8765"
BEGUN = "mcp-optimizer-begun"
KEPT = "mcp-optimizer"


@pytest.fixture(scope="module")
def issuer() -> Iterator[LoginWorld]:
    with issuer_world() as world:
        yield world


class Company:
    """A provider at which the gateway is a client, and what its people are."""

    def __init__(self, world: LoginWorld) -> None:
        self.world = world
        self.client = world.add_client(
            redirect_uris=[f"{PUBLIC}/login/done"], grant_types=["authorization_code"], response_types=["code"]
        )
        self.are()

    def are(self, **switches: Any) -> None:
        """How the provider behaves from now on; all else as usual."""
        usual = {"id_claims": {"role": "see"}, "id_token": "", "deny": False, "iss": "", "auto": False}
        now = {**usual, "codes_last": False, "delay_code": 0, "fail_code": 0, "user": "ada", **switches}
        # As ASCII: some claims are no text that can be encoded.
        self.world.http.post(f"{self.world.issuer}/control", content=json.dumps(now)).raise_for_status()

    def issuer(self, **more: Any) -> dict[str, Any]:
        login = {"client_id": self.client["client_id"], "client_secret": self.client["client_secret"], "title": "Corp"}
        return {
            "name": "corp",
            "issuer": self.world.issuer,
            "role_claim": "role",
            "dashboard_login": {**login, **more.pop("login", {})},
            **more,
        }


@pytest.fixture
def company(issuer: LoginWorld) -> Company:
    return Company(issuer)


@asynccontextmanager
async def at(company: Company, place: Path, **more: Any) -> AsyncIterator[Gateway]:
    async with gateway(place, public_url=PUBLIC, token_issuers=[company.issuer(**more)]) as world:
        yield world


@asynccontextmanager
async def beside(first: Gateway, company: Company, **more: Any) -> AsyncIterator[Gateway]:
    async with another_gateway(first, public_url=PUBLIC, token_issuers=[company.issuer(**more)]) as world:
        yield world


async def begun(client: httpx2.AsyncClient) -> str:
    """The address at the provider to which the button leads."""
    answer = await client.get("/login/with/corp")
    assert answer.status_code == 303, answer.text
    return str(answer.headers["Location"])


async def returned(company: Company, client: httpx2.AsyncClient) -> str:
    """The address to which the provider sends a person who has allowed it."""
    return await asyncio.to_thread(company.world.browser, await begun(client))


async def signed_in(company: Company, client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.get(await returned(company, client))


def assert_refused(answer: httpx2.Response, status: int, told: str) -> None:
    assert (answer.status_code, told in Elements(answer.text).text) == (status, True), answer.text
    assert_harmless(answer.text)
    assert f"{KEPT}=" not in str(answer.headers.get_list("set-cookie"))


async def test_a_person_signs_in_with_the_company_and_has_the_role_that_it_names(
    company: Company, tmp_path: Path
) -> None:
    company.are(id_claims={"role": "manage", "groups": ["dev"]})
    async with at(company, tmp_path / "catalog.db", groups_claim="groups") as world, world.browser() as client:
        page = await client.get("/login")
        assert page.status_code == 401
        assert 'href="/login/with/corp"' in page.text
        assert "Sign in with Corp" in page.text
        answer = await signed_in(company, client)
        assert answer.status_code == 200
        [cookie] = [one for one in answer.headers.get_list("set-cookie") if one.startswith(f"{KEPT}=")]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict"))
        assert BEGUN not in client.cookies
        shown = await client.get("/callers")
        assert shown.status_code == 200
        assert "corp:ada" in shown.text
        assert (await client.post("/callers/new", data={"name": "made"})).status_code == 200
        await client.post("/logout")
        assert (await client.get("/callers")).status_code == 401
    acts = [(one.method, one.caller, one.client) for one in await world.audited()]
    assert ("dashboard/sign-in", "corp:ada", "dashboard") in acts
    assert ("key/create", "corp:ada", "dashboard") in acts


async def test_what_the_provider_is_asked_binds_its_answer_to_this_browser(company: Company, tmp_path: Path) -> None:
    async with at(company, tmp_path / "catalog.db", required_scopes=["mcp:read"]) as world, world.browser() as client:
        asked = {name: value[0] for name, value in parse_qs(urlsplit(await begun(client)).query).items()}
        again = {name: value[0] for name, value in parse_qs(urlsplit(await begun(client)).query).items()}
    assert asked["redirect_uri"] == f"{PUBLIC}/login/done"
    assert asked["scope"].split() == ["openid", "profile", "email", "mcp:read"]
    assert asked["code_challenge_method"] == "S256"
    assert "resource" not in asked
    assert all(asked[name] != again[name] for name in ("state", "nonce", "code_challenge"))


async def test_a_sign_in_that_begins_at_one_gateway_ends_at_another_and_counts_at_both(
    company: Company, tmp_path: Path
) -> None:
    async with (
        at(company, tmp_path / "catalog.db") as one,
        beside(one, company) as other,
        one.browser() as client,
        other.browser() as elsewhere,
    ):
        address = await returned(company, client)
        elsewhere.cookies = client.cookies
        assert (await elsewhere.get(address)).status_code == 200
        client.cookies = elsewhere.cookies
        assert (await client.get("/callers")).status_code == 200
        await client.post("/logout")
        assert (await elsewhere.get("/callers")).status_code == 401


async def test_an_answer_is_good_for_one_sign_in_even_if_the_provider_forgets_that(
    company: Company, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(at(company, tmp_path / "catalog.db"))
        other = await stack.enter_async_context(beside(one, company))
        client = await stack.enter_async_context(one.browser())
        address = await returned(company, client)
        kept = client.cookies[BEGUN]
        assert (await client.get(address)).status_code == 200
        client.cookies.clear()
        # Without what the browser kept, and with it: the provider has forgotten the code.
        assert_refused(await client.get(address), 400, "did not begin in this browser")
        again = {"Cookie": f"{BEGUN}={kept}"}
        assert_refused(await client.get(address, headers=again), 401, "invalid_grant")
        await asyncio.to_thread(company.are, codes_last=True)
        address = await returned(company, client)
        again = {"Cookie": f"{BEGUN}={client.cookies[BEGUN]}"}
        client.cookies.clear()
        twin = await stack.enter_async_context(other.browser())
        answers = await asyncio.gather(*(browser.get(address, headers=again) for browser in (client, twin) * 3))
        assert sorted(answer.status_code for answer in answers) == [200, *[401] * 5]
        assert sum("was used before" in answer.text for answer in answers) == 5


async def test_nobody_is_signed_in_with_the_answer_to_somebody_else_s_sign_in(company: Company, tmp_path: Path) -> None:
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as eve, world.browser() as ada:
        address = await returned(company, eve)
        # Ada's browser has begun nothing, then something else.
        assert_refused(await ada.get(address), 400, "did not begin in this browser")
        await begun(ada)
        assert_refused(await ada.get(address), 401, "another sign-in")
        assert BEGUN not in ada.cookies
        code = parse_qs(urlsplit(address).query)["code"][0]
        asked = parse_qs(urlsplit(await begun(ada)).query)
        stolen = urlencode({"code": code, "state": asked["state"][0], "iss": company.world.issuer})
        # With Ada's own state: the code belongs to another verifier.
        assert_refused(await ada.get(f"/login/done?{stolen}"), 401, "invalid_grant")


SECRET = "a" * 43
MADE_UP = ("", "corp", "corp.1.x", f"corp.1.{SECRET}", f"other.1.{SECRET}", f"corp.{'9' * 12}.{SECRET}", "é" * 99,
           f"corp.{'9' * 5_000}.{SECRET}")  # fmt: skip
QUERIES = ("", "?code=x", "?code=x&state=", "?state=a&state=b&code=x", "?state=%ff%00&code=%ff", "?" + "a=b&" * 3_000)


async def test_made_up_answers_are_refused_and_kept_nowhere(company: Company, tmp_path: Path) -> None:
    place = tmp_path / "catalog.db"
    async with at(company, place) as world, world.browser() as client:
        before = await asyncio.to_thread(company.world.counts)
        for kept in MADE_UP:
            for query in QUERIES:
                cookie = [(b"cookie", f"{BEGUN}={kept}".encode())]
                answer = await client.get(f"/login/done{query}", headers=cookie)
                assert answer.status_code in (400, 401), (kept, query)
                assert_harmless(answer.text)
        for _ in range(5):
            await begun(client)
        assert await asyncio.to_thread(company.world.counts) == before
        database = await open_database(place)
        async with database.engine.connect() as connection:
            assert (await connection.execute(sign_in_rows.select())).all() == []
        await database.close()


async def test_no_address_leads_a_browser_elsewhere(company: Company, tmp_path: Path) -> None:
    evil = urlencode({"next": "https://evil.example", "redirect_uri": "https://evil.example", "issuer": "x"})
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as client:
        begins = await client.get(f"/login/with/corp?{evil}")
        assert begins.headers["Location"].startswith(f"{company.world.issuer}/authorize?")
        assert "evil" not in begins.headers["Location"]
        for name in ("other", "%2F%2Fevil.example", "corp%0d%0aX: y", "x" * 3_000):
            answer = await client.get(f"/login/with/{name}")
            assert (answer.status_code, answer.headers.get("Location")) in ((303, f"{PUBLIC}/login"), (404, None))
        another_site = await client.get("/login/with/corp", headers={"Sec-Fetch-Site": "cross-site"})
        assert another_site.headers["Location"] == f"{PUBLIC}/login"
        done = await client.get(f"{await returned(company, client)}&{evil}")
        assert done.status_code == 200
        assert "evil" not in done.text
        assert (await client.head("/login/done?code=x")).status_code == 405
        assert (await client.head("/login/with/corp")).status_code == 405
        async with world.browser(address="http://127.0.0.1:8765") as other:
            # What is kept under this name would not come back.
            assert (await other.get("/login/with/corp")).headers["Location"] == f"{PUBLIC}/login"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"aud": "another-client"}, "for another audience"),
    ({"aud": None}, "for another audience"),
    ({"azp": "another-client"}, "another client"),
    ({"iss": "https://evil.example"}, "another issuer"),
    ({"exp": 1}, "has expired"),
    ({"exp": None}, "does not say when it expires"),
    ({"nbf": 99_999_999_999}, "not valid yet"),
    ({"nonce": None}, "nonce"),
    ({"nonce": "another"}, "nonce"),
    ({"nonce": "\ud800"}, "nonce"),
    ({"nonce": ["a"]}, "nonce"),
    ({"sub": None}, "lacks the claim 'sub'"),
    ({"sub": "a\x1b[31mb"}, "cannot be printed"),
    ({"sub": "a\u202eb"}, "cannot be printed"),
    ({"sub": "<b>ada</b>" * 100}, "too long"),
    ({"sub": 7}, "lacks the claim 'sub'"),
    ({"groups": 7}, "neither a list of texts nor one text"),
    ({"groups": ["a\nb"]}, "cannot be printed"),
    ({"role": "manage", "padding": "x" * 70_000}, ""),
]


async def test_an_id_token_that_is_not_for_this_sign_in_opens_nothing(company: Company, tmp_path: Path) -> None:
    async with at(company, tmp_path / "catalog.db", groups_claim="groups") as world, world.browser() as client:
        for claims, told in WRONG:
            await asyncio.to_thread(company.are, id_claims={"role": "manage", **claims})
            assert_refused(await signed_in(company, client), 401, told)
            assert (await client.get("/callers")).status_code == 401
        assert [one for one in await world.audited() if one.method == "dashboard/sign-in"] == []


async def test_a_token_that_somebody_else_signed_opens_nothing(company: Company, tmp_path: Path) -> None:
    now = int(time.time())
    said = {"iss": company.world.issuer, "aud": company.client["client_id"], "sub": "ada", "exp": now + 60}
    made = [
        jwt.encode(said, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "mine"}),
        jwt.encode(said, company.client["client_secret"] + "x" * 32, "HS256"),
        jwt.encode(said, "", "none"),
        "not a token",
        "a.b.c",
    ]
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as client:
        for token in made:
            await asyncio.to_thread(company.are, id_token=token)
            answer = await signed_in(company, client)
            assert answer.status_code in (401, 503)
            assert_refused(answer, answer.status_code, "")


async def test_a_refusal_of_the_provider_and_an_answer_in_another_name_are_said(
    company: Company, tmp_path: Path
) -> None:
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as client:
        await asyncio.to_thread(company.are, deny=True)
        assert_refused(await signed_in(company, client), 401, "access_denied")
        await asyncio.to_thread(company.are, iss="https://evil.example")
        assert_refused(await signed_in(company, client), 401, "iss does not match")
        await asyncio.to_thread(company.are)
        address = await returned(company, client)
        kept = [pair for pair in urlsplit(address).query.split("&") if not pair.startswith("iss=")]
        assert_refused(await client.get(f"/login/done?{'&'.join(kept)}"), 401, "no iss")


async def test_someone_without_any_rights_is_told_who_they_are_and_what_is_missing(
    company: Company, tmp_path: Path
) -> None:
    company.are(id_claims={"role": "none"}, user="bob")
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as client:
        assert_refused(await signed_in(company, client), 403, "You are corp:bob, and have no rights on this dashboard")
        assert (await client.get("/callers")).status_code == 401
    [act] = [one for one in await world.audited() if one.method == "dashboard/sign-in"]
    assert (act.caller, act.decision) == ("corp:bob", "deny")


async def test_who_has_no_role_has_a_page_of_its_own_where_servers_act_as_each_caller(
    company: Company, tmp_path: Path
) -> None:
    company.are(id_claims={}, user="bob")
    entry = {"url": "http://localhost:9/mcp", "auth": {"type": "oauth", "principal": "caller"}}
    options: dict[str, Any] = {"public_url": PUBLIC, "token_issuers": [company.issuer()], "http": "127.0.0.1:8765"}
    specs = given_servers({"desk": entry}, {})
    async with gateway(tmp_path / "catalog.db", specs=specs, **options) as world, world.browser() as client:
        assert (await signed_in(company, client)).status_code == 200
        assert (await client.get("/")).headers["Location"] == "/mine"
        page = await client.get("/mine")
        assert "Servers that act as you, corp:bob." in Elements(page.text).text
        refused = await client.get("/callers")
        assert (refused.status_code, "role_claim" in refused.text) == (403, True)


async def test_scopes_that_every_token_needs_are_needed_here_too(company: Company, tmp_path: Path) -> None:
    async with at(company, tmp_path / "catalog.db", required_scopes=["mcp:read"]) as world, world.browser() as client:
        assert (await signed_in(company, client)).status_code == 200
        assert (await client.get("/callers")).status_code == 200
    person = CompanySignIn(TokenIssuer(**company.issuer(required_scopes=["mcp:admin"])), _login(company), Web())
    with pytest.raises(Exception, match="did not grant the scopes mcp:admin"):
        person.person({"sub": "ada", "scope": "openid mcp:read"})
    await person.close()


async def test_a_sign_in_ends_when_the_settings_no_longer_permit_it(company: Company, tmp_path: Path) -> None:
    async with at(company, tmp_path / "catalog.db") as world:
        async with world.browser() as client:
            await signed_in(company, client)
            cookies = client.cookies
        async with beside(world, company, role_claim="another") as other, other.browser() as client:
            client.cookies = cookies
            assert (await client.get("/callers")).status_code == 403
        async with another_gateway(world, public_url=PUBLIC) as other, other.browser() as client:
            client.cookies = cookies
            assert (await client.get("/callers")).status_code == 401
            assert (await client.get("/login/with/corp")).status_code == 404


async def test_a_sign_in_lasts_as_long_as_the_settings_say_and_no_longer(company: Company, tmp_path: Path) -> None:
    place = tmp_path / "catalog.db"
    async with at(company, place, login={"hours": 0.5}) as world, world.browser() as client:
        await signed_in(company, client)
        database = await open_database(place)
        async with database.engine.connect() as connection:
            rows = (await connection.execute(sign_in_rows.select())).all()
        await database.close()
    [person] = [row for row in rows if row.kind == "person"]
    assert 0 < person.until_ms / 1_000 - time.time() <= 1_800 < LASTS
    claims = json.loads(person.bound_to)["claims"]
    assert {"nonce", "aud", "exp"}.isdisjoint(claims)
    assert [one for one in company.world.secrets() if one in str(rows)] == []


async def test_a_provider_that_is_away_or_lies_about_itself_is_named_and_keys_still_work(
    company: Company, tmp_path: Path
) -> None:
    gone = {**company.issuer(), "issuer": "http://localhost:9"}
    other = {**company.issuer(name="other"), "issuer": f"{company.world.issuer}/other"}
    options: dict[str, Any] = {"public_url": PUBLIC, "token_issuers": [gone, other]}
    async with gateway(tmp_path / "catalog.db", **options) as world, world.browser() as client:
        assert_refused(await client.get("/login/with/corp"), 503, "Corp cannot be reached")
        assert_refused(await client.get("/login/with/other"), 503, "does not describe itself")
        assert (await client.post("/login", data={"token": world.keys[Role.SEE]})).status_code == 303
    evil = {"issuer": "https://evil.example", "authorization_endpoint": "https://evil.example/authorize"}
    lying = json.dumps({**evil, "token_endpoint": "https://evil.example/token", "response_types_supported": ["code"]})
    for status, body, told in (
        (200, lying.encode(), "calls itself 'https://evil.example'"),
        (200, b"{" * 300_000, "more than 256 KB"),
        (500, b"", "HTTP status 500"),
    ):
        transport = httpx2.MockTransport(partial(_answer, status, body))
        web = Web(transport)
        one = CompanySignIn(TokenIssuer(name="corp", issuer="https://login.example"), _login(company), web)
        with pytest.raises((Unanswered, LoginFailed), match=told):
            await one.begin(f"{PUBLIC}/login/done")
        await one.close()
        await web.close()


async def test_a_provider_that_does_not_answer_is_not_waited_for_long_and_not_asked_again_at_once(
    company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at(company, tmp_path / "catalog.db") as world, world.browser() as client:
        address = await returned(company, client)
        await asyncio.to_thread(company.are, fail_code=503)
        assert_refused(await client.get(address), 503, "HTTP status 503")
        address = await returned(company, client)
        await asyncio.to_thread(company.are, delay_code=60)
        monkeypatch.setattr(web_module, "_SECONDS", 0.5)
        assert_refused(await client.get(address), 503, "Corp cannot be asked now")
    asked: list[str] = []

    def down(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        raise httpx2.ConnectError("down")

    now = [1_000_000.0]
    web = Web(httpx2.MockTransport(down))
    issuer = TokenIssuer(name="corp", issuer="https://login.example")
    one = CompanySignIn(issuer, _login(company), web, lambda: now[0])
    for _ in range(5):
        with pytest.raises(Unanswered):
            await one.begin(f"{PUBLIC}/login/done")
    first = len(asked)
    now[0] += 6
    with pytest.raises(Unanswered):
        await one.begin(f"{PUBLIC}/login/done")
    assert (first, len(asked)) == (1, 2)
    await one.close()
    await web.close()


async def _answer(status: int, body: bytes, _request: httpx2.Request) -> httpx2.Response:
    async def sent() -> AsyncIterator[bytes]:
        yield body

    return httpx2.Response(status, content=sent())


def _login(company: Company) -> DashboardLogin:
    return DashboardLogin(client_id=company.client["client_id"])


@pytest.mark.parametrize(
    ("login", "public_url", "told"),
    [
        ({"client_id": "x"}, "", "needs public_url"),
        ({"client_id": ""}, PUBLIC, "client_id"),
        ({}, PUBLIC, "client_id"),
        ({"client_id": "x", "hours": 0}, PUBLIC, "hours"),
        ({"client_id": "x", "hours": 13}, PUBLIC, "hours"),
        ({"client_id": "x", "title": "a\x1b[31m"}, PUBLIC, "printed"),
        ({"client_id": "x", "title": "a" * 61}, PUBLIC, "title"),
        ({"client_id": "x", "scopes": ["a b"]}, PUBLIC, "cannot be a scope"),
        ({"client_id": "x", "secret": "y"}, PUBLIC, "secret"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(login: dict[str, Any], public_url: str, told: str) -> None:
    one = {"name": "corp", "issuer": "https://login.example", "dashboard_login": login}
    with pytest.raises(ConfigurationError, match=told):
        load_settings({"token_issuers": [one], "public_url": public_url}, {})
