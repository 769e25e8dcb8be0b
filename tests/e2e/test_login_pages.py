"""Logging in on the dashboard, in a real browser, with a real authorization server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.browsers import allow_login, browser_page, enter, needs_chromium, shot
from tests.e2e.running import gateway_at, until_found
from tests.servers.login_world import LoginWorld, login_world

pytestmark = [pytest.mark.slow, needs_chromium]

TOKEN = "the token of the dashboard"


@pytest.fixture
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=600) as world:
        yield world


@pytest.fixture
def config(write_servers: WriteServers, world: LoginWorld) -> Path:
    return write_servers({"notes": {"type": "http", "url": world.server_url}})


async def test_a_person_logs_in_and_out_on_the_dashboard(config: Path, world: LoginWorld) -> None:
    async with gateway_at(config) as address, browser_page() as (page, problems):
        await enter(page, config)
        await page.get_by_role("link", name="login needed").click()
        await _log_in(page, world)
        await shot(page, "logged-in")
        async with Client(address) as client:
            await until_found(client, "who am I", "whoami")
        await page.get_by_role("link", name="All logins").click()
        shown = await page.locator(".logins").inner_text()
        assert "logged in" in shown
        assert world.issuer in shown
        assert not [secret for secret in world.secrets() if secret in await page.content()]
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_text("not logged in").wait_for()
        assert world.counts()["revocations"] == 1
        assert _ours(problems, world) == []


async def test_a_person_with_the_token_of_the_dashboard_logs_in(config: Path, world: LoginWorld) -> None:
    async with gateway_at(config, "--dashboard-token", TOKEN) as address, browser_page() as (page, problems):
        home = address.removesuffix("mcp")
        await page.goto(home)
        await page.get_by_label("Key or token").fill(TOKEN)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("link", name="Logins").click()
        await _log_in(page, world)
        await page.get_by_role("link", name="All logins").click()
        assert "logged in" in await page.locator(".logins").inner_text()
        # The page that asked for the token said so with its status.
        assert [problem for problem in _ours(problems, world) if "401" not in problem] == []


async def _log_in(page: Any, world: LoginWorld) -> None:
    await page.get_by_role("button", name="Log in").click()
    asked = await page.locator("main").inner_text()
    assert "Log in to notes" in asked
    assert "mcp:read" in asked
    assert "You are logged in to notes" in await allow_login(page, world.issuer)


def _ours(problems: list[str], world: LoginWorld) -> list[str]:
    """Those that are not of the authorization server, which has no icon."""
    return [problem for problem in problems if world.issuer not in problem]
