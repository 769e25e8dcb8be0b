"""Forged ways back from a login, and those that a person really took, with a real authorization server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.domain.tools import ServerStatus
from tests.servers.login_world import LoginWorld, login_world
from tests.unit.dashboard.test_dashboard import Elements
from tests.unit.dashboard.visiting import let_in
from tests.waiting import until

NAME = '<script>alert("x")</script>'
HOME = "http://localhost:8765"


@pytest.fixture
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=60) as world:
        yield world


@asynccontextmanager
async def browser(
    world: LoginWorld, folder: Path, **options: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Optimizer]]:
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {NAME: {"type": "http", "url": world.server_url}}}))
    database = str(folder / "catalog.db")
    async with Optimizer.from_config(config, database=database, encoder="none", **options) as optimizer:
        transport = httpx2.ASGITransport(app=optimizer.http_app("127.0.0.1"))
        home = HOME.replace("http:", "https:") if "public_url" in options else HOME
        async with httpx2.AsyncClient(transport=transport, base_url=home) as client:
            await let_in(client, optimizer)
            yield client, optimizer


async def begun(client: httpx2.AsyncClient) -> str:
    """The address that a person continues to after pressing "Log in"."""
    answer = await client.post(f"/logins/{quote(NAME, safe='')}", headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200, answer.text
    elements = Elements(answer.text)
    assert NAME in elements.text
    return next(given["href"] or "" for tag, given in elements.tags if given.get("rel") == "noreferrer")


async def allowed(client: httpx2.AsyncClient, world: LoginWorld) -> str:
    """The address that the browser is sent back to."""
    return await asyncio.to_thread(world.browser, await begun(client))


async def running(optimizer: Optimizer) -> None:
    await until(lambda: optimizer.servers()[0].status is ServerStatus.RUNNING)
    await optimizer.catalog.caught_up()


async def test_a_login_works_once_and_only_with_its_own_state_and_host(world: LoginWorld, tmp_path: Path) -> None:
    async with browser(world, tmp_path) as (client, optimizer):
        redirect = await allowed(client, world)
        assert redirect.startswith(f"{HOME}/logins/callback?")
        code = parse_qs(urlsplit(redirect).query)["code"][0]
        forged = await client.get("/logins/callback", params={"code": code, "state": "guessed", "iss": world.issuer})
        assert forged.status_code == 400
        assert (await client.get(redirect, headers={"Host": "evil.example"})).status_code == 421
        assert optimizer.servers()[0].status is ServerStatus.LOGIN_NEEDED
        # None of these has used up the login.
        logged_in = await client.get(redirect)
        assert logged_in.status_code == 200
        text = Elements(logged_in.text).text
        assert "Logged in" in text
        assert NAME in text
        assert (await client.get(redirect)).status_code == 400
        await running(optimizer)
        page = (await client.get("/logins")).text
        shown = "".join((forged.text, logged_in.text, page))
        assert not [secret for secret in world.secrets() if secret in shown]
        assert "<script>alert" not in shown
    assert world.counts()["codes_exchanged"] == 1


async def test_another_site_begins_no_login_and_ends_none(world: LoginWorld, tmp_path: Path) -> None:
    async with browser(world, tmp_path) as (client, optimizer):
        assert (await client.get(await allowed(client, world))).status_code == 200
        await running(optimizer)
        path = f"/logins/{quote(NAME, safe='')}"
        for sent in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert (await client.post(path, headers=sent)).status_code == 403
            assert (await client.post(f"{path}/out", headers=sent)).status_code == 403
        statuses = await optimizer.logins.statuses([optimizer.servers()[0].spec])
        assert statuses[0].state == "logged in"
    assert world.counts()["revocations"] == 0


async def test_an_answer_of_another_issuer_uses_up_the_login(world: LoginWorld, tmp_path: Path) -> None:
    async with browser(world, tmp_path) as (client, _):
        redirect = await allowed(client, world)
        given = {name: values[0] for name, values in parse_qs(urlsplit(redirect).query).items()}
        mixed_up = await client.get("/logins/callback", params={**given, "iss": "https://evil.example"})
        assert mixed_up.status_code == 400
        assert (await client.get(redirect)).status_code == 400
    assert world.counts()["codes_exchanged"] == 0


async def test_a_person_who_refuses_reads_so(world: LoginWorld, tmp_path: Path) -> None:
    async with browser(world, tmp_path) as (client, _):
        await asyncio.to_thread(world.control, deny=True)
        answer = await client.get(await allowed(client, world))
    assert answer.status_code == 400
    assert "access_denied" in answer.text


async def test_with_a_public_address_every_login_comes_back_there(world: LoginWorld, tmp_path: Path) -> None:
    async with browser(world, tmp_path, public_url="https://gate.example/tools/") as (client, optimizer):
        address = await begun(client)
        expected = "https://gate.example/tools/logins/callback"
        assert parse_qs(urlsplit(address).query)["redirect_uri"] == [expected]
        assert optimizer.logins.callback_address == expected
