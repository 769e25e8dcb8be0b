"""The pages of logins: what they show, to whom, and who may begin and end a login."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec, ServerSpec, Transport
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.dashboard.guard import HEADERS
from mcp_optimizer.dashboard.login_pages import BegunLogin, LoginRow, logins_page, question_page
from mcp_optimizer.dashboard.overview_pages import ServerRow, servers_table
from mcp_optimizer.identity.login import LoginStatus
from tests.unit.dashboard.test_dashboard import HOSTILE, Elements, assert_harmless
from tests.unit.dashboard.visiting import let_in

EVIL = "<b>x</b>/out"
ACCOUNT = AuthSpec(kind=AuthKind.CLIENT_CREDENTIALS, client_id="id")
NOW = 1_000_000.0


def remote(name: str, **given: Any) -> ServerSpec:
    """A server that nobody listens for."""
    return ServerSpec(name=name, transport=Transport.HTTP, url="http://127.0.0.1:9/mcp", **given)


SERVERS = [
    remote("notes"),
    remote(EVIL),
    remote("account", auth=ACCOUNT),
    ServerSpec(name="here", transport=Transport.STDIO, command="true"),
]


@asynccontextmanager
async def browser(
    host: str = "127.0.0.1", address: str = "http://localhost:8765", *, is_owner: bool = True, **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser of the owner, or of anybody, for a gateway that was not started."""
    optimizer = Optimizer(SERVERS, load_settings({"encoder": "none", "database": "none", **options}, {}))
    transport = httpx2.ASGITransport(app=optimizer.http_app(host))
    try:
        async with httpx2.AsyncClient(
            transport=transport, base_url=address, headers={"Sec-Fetch-Site": "same-origin"}
        ) as client:
            if is_owner:
                await let_in(client, optimizer)
            yield client
    finally:
        await optimizer.stop()


def actions(page: str) -> list[str | None]:
    return [given.get("action") for tag, given in Elements(page).tags if tag == "form" and given["method"] == "post"]


# What is shown


async def test_the_page_lists_servers_that_may_want_a_login_and_their_names_are_text() -> None:
    async with browser() as client:
        answer = await client.get("/logins")
    assert answer.status_code == 200
    assert_harmless(answer.text)
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"
    elements = Elements(answer.text)
    assert EVIL in elements.text
    assert "b" not in [tag for tag, _ in elements.tags]
    assert "here" not in elements.text
    # Nobody logs in to the gateway's own account.
    assert actions(answer.text) == ["/logout", "/logins/notes", "/logins/%3Cb%3Ex%3C%2Fb%3E%2Fout"]


def test_a_login_is_shown_with_all_that_people_may_know() -> None:
    login = LoginStatus(
        "notes", "more permissions needed", "https://id.example", ("read",), NOW + 7_300, NOW - 61, True, "", ("write",)
    )
    page = logins_page([LoginRow(login)], NOW, "1")
    text = Elements(page).text
    for part in ("more permissions needed", "https://id.example", "read", "write", "in 2 hours", "1 minute ago"):
        assert part in text
    assert actions(page) == ["/logins/notes", "/logins/notes/out"]
    assert 'class="state more-permissions-needed"' in page


def test_a_login_that_is_over_says_why_and_promises_no_refresh() -> None:
    login = LoginStatus("notes", "login needed", "https://id.example", (), NOW - 5, NOW - 99, True, HOSTILE)
    page = logins_page([LoginRow(login)], NOW, "1")
    assert_harmless(page)
    text = Elements(page).text
    assert "5 seconds ago; only a new login helps" in text
    assert "<img src=x onerror=alert(1)>" in text


@pytest.mark.parametrize(("is_asked", "state"), [(True, "login needed"), (False, "not logged in")])
def test_a_server_without_a_login_needs_one_only_if_it_asks(is_asked: bool, state: str) -> None:
    page = logins_page([LoginRow(LoginStatus("notes", "none"), is_asked)], NOW, "1")
    assert f'class="state {state.replace(" ", "-")}">{state}<' in page
    assert actions(page) == ["/logins/notes"]
    assert ('class="main"' in page) is is_asked


def test_the_overview_leads_from_a_needed_login_to_the_page() -> None:
    table = servers_table([ServerRow("notes", "login needed", 0, 0), ServerRow("git", "running", 1, 9)], 9)
    assert '<a class="state login-needed" href="/logins">login needed</a>' in table
    assert '<span class="state running">running</span>' in table


def test_whoever_logs_in_reads_where_to_and_what_for_before_leaving() -> None:
    address = "https://login.example/authorize?state=s&scope=read"
    asked = BegunLogin(EVIL, "https://id.example", address, ("read",), "http://localhost:1/logins/callback")
    elements = Elements(question_page(asked, "1"))
    for part in (EVIL, "Continue to https://id.example", "login.example", "read", "http://localhost:1/logins/callback"):
        assert part in elements.text
    links = [given for tag, given in elements.tags if tag == "a" and (given["href"] or "").startswith("http")]
    assert [link["href"] for link in links] == [address]


# Who may do what


@pytest.mark.parametrize("path", ["/logins", "/logins/callback"])
async def test_another_host_or_origin_sees_nothing(path: str) -> None:
    async with browser() as client:
        assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get(path, headers={"Origin": "http://evil.example"})).status_code == 403


@pytest.mark.parametrize("path", ["/logins/none", "/logins/none/out"])
async def test_a_form_of_another_site_is_refused(path: str) -> None:
    async with browser() as client:
        for site in ("cross-site", "same-site", "anything"):
            assert (await client.post(path, headers={"Sec-Fetch-Site": site})).status_code == 403
        for origin in ("http://evil.example", "null"):
            assert (await client.post(path, headers={"Origin": origin})).status_code == 403
        for site in ("same-origin", "none"):
            # It comes as far as to find that there is no such server.
            assert (await client.post(path, headers={"Sec-Fetch-Site": site})).status_code == 404
        del client.headers["Sec-Fetch-Site"]
        # What neither says where it comes from nor has the token is no browser of a person.
        assert (await client.post(path)).status_code == 403
        assert (await client.post(path, headers={"Origin": "http://evil.example"})).status_code == 403


async def test_the_token_is_asked_for_everywhere_but_on_the_way_back() -> None:
    async with browser(dashboard_token="a secret of the owner", is_owner=False) as client:
        for answer in (
            await client.get("/logins"),
            await client.get("/logins/notes"),
            await client.post("/logins/notes"),
            await client.post("/logins/notes/out"),
        ):
            assert answer.status_code == 401
            assert "notes" not in answer.text
        back = await client.get("/logins/callback?state=x&code=y")
    assert back.status_code == 400
    assert "notes" not in back.text
    assert back.headers["Referrer-Policy"] == "no-referrer"


async def test_beyond_loopback_and_on_it_nobody_logs_in_who_is_not_signed_in() -> None:
    async with browser("192.0.2.1", "http://gate:80", allowed_hosts="gate", is_owner=False) as client:
        assert (await client.get("/logins")).status_code == 401
        assert (await client.post("/logins/notes")).status_code == 401
    async with browser(is_owner=False) as client:
        assert (await client.get("/logins")).status_code == 401
        assert (await client.post("/logins/notes")).status_code == 401


@pytest.mark.parametrize("query", ["", "?state=&code=x", "?state=x", "?state=a&state=b", "?" + "x=1&" * 9_000, "?%ff"])
async def test_a_callback_that_nobody_waits_for_is_refused(query: str) -> None:
    async with browser() as client:
        answer = await client.get(f"/logins/callback{query}")
    assert answer.status_code == 400
    assert "Not logged in" in answer.text
    assert_harmless(answer.text)


async def test_a_server_that_takes_no_login_says_why() -> None:
    async with browser() as client:
        local = await client.post("/logins/here")
        out = await client.post("/logins/here/out")
        account = await client.post("/logins/account")
    assert [answer.status_code for answer in (local, out, account)] == [400, 400, 400]
    assert "is a command on this machine" in local.text
    assert "own account" in account.text


async def test_an_authorization_server_that_cannot_be_reached_is_named() -> None:
    async with browser() as client:
        answer = await client.post("/logins/notes")
    assert answer.status_code == 502
    assert "127.0.0.1 does not answer" in answer.text


async def test_a_slash_in_a_name_is_not_the_way_out() -> None:
    async with browser() as client:
        known = await client.post("/logins/%3Cb%3Ex%3C%2Fb%3E%2Fout")
        unknown = await client.post("/logins/%3Cb%3Ex%3C%2Fb%3E/out")
        out = await client.post("/logins/%3Cb%3Ex%3C%2Fb%3E%2Fout/out")
        assert (await client.post("/logins/notes/out/out")).status_code == 404
    assert (known.status_code, unknown.status_code, out.status_code) == (502, 404, 303)
    assert out.headers["location"] == "/logins"
    assert_harmless(known.text)
    assert_harmless(unknown.text)


@pytest.mark.parametrize("host", ["localhost:1@evil.example", "localhost:1/x?", "localhost:]", "[::1]:]["])
async def test_a_host_that_is_no_host_is_not_come_back_to(host: str) -> None:
    async with browser() as client:
        answer = await client.post("/logins/notes", headers={"Host": host})
    assert answer.status_code == 400
    assert "public_url" in answer.text


async def test_opening_the_address_of_a_form_shows_all_logins() -> None:
    async with browser() as client:
        answer = await client.get("/logins/notes")
    assert (answer.status_code, answer.headers["location"]) == (303, "/logins")
