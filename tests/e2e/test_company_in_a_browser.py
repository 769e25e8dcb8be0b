"""Signing in to the dashboard with a company's provider, in a real browser with its cookies and policies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_optimizer.domain.caller import Role
from tests.conftest import WriteServers, plain_server
from tests.e2e.browsers import browser_page, needs_chromium, shot
from tests.e2e.made_keys import made_key
from tests.e2e.running import gateway_at
from tests.e2e.test_http_upstreams import free_port
from tests.servers.login_world import issuer_world

pytestmark = [pytest.mark.slow, needs_chromium]

SETTINGS = """
public_url = "http://localhost:{port}"

[[token_issuers]]
name = "corp"
issuer = "{issuer}"
role_claim = "role"

[token_issuers.dashboard_login]
client_id = "{client_id}"
client_secret = "{client_secret}"
title = "Example Corp"
"""


async def test_a_person_signs_in_with_the_company_and_sees_only_what_its_role_permits(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    config = write_servers({"one": plain_server("one")})
    await made_key("boss", role=Role.MANAGE)
    port = free_port()
    home = f"http://localhost:{port}"
    with issuer_world() as world:
        client = world.add_client(redirect_uris=[f"{home}/login/done"])
        settings = tmp_path / "company.toml"
        settings.write_text(SETTINGS.format(port=port, issuer=world.issuer, **client))
        arguments = ("--http", f"127.0.0.1:{port}", "--settings", settings, "--require-auth", "--encoder", "none")
        async with gateway_at(config, *arguments):
            for scheme in ("light", "dark"):
                for width in (1280, 390):
                    async with browser_page(scheme, width) as (page, problems):
                        await page.goto(f"{home}/login")
                        await page.get_by_role("link", name="Sign in with Example Corp").wait_for()
                        await shot(page, f"company-sign-in-{scheme}-{width}")
                        is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                        assert not await page.evaluate(is_wide)
                    # The page that asks for a sign-in has the status 401, which the browser reports.
                    assert [one for one in problems if "401" not in one] == []
            async with browser_page() as (page, problems):
                await asyncio.to_thread(world.control, id_claims={"role": "none"}, user="bob")
                await page.goto(f"{home}/login")
                await page.get_by_role("link", name="Sign in with Example Corp").click()
                await page.get_by_role("button", name="Allow").click()
                await page.get_by_text("You are corp:bob, and have no rights on this dashboard").wait_for()
                await shot(page, "company-no-rights")
                await asyncio.to_thread(world.control, id_claims={"role": "see"}, user="ada")
                await page.get_by_role("link", name="Sign in").click()
                await page.get_by_role("link", name="Sign in with Example Corp").click()
                await page.get_by_role("button", name="Allow").click()
                await page.get_by_role("button", name="Sign out").wait_for()
                await page.wait_for_url(f"{home}/")
                cookies = {one["name"]: one for one in await page.context.cookies()}
                assert cookies.keys() == {"mcp-optimizer"}
                assert (cookies["mcp-optimizer"]["httpOnly"], cookies["mcp-optimizer"]["sameSite"]) == (True, "Strict")
                await page.goto(f"{home}/callers")
                await page.get_by_role("heading", name="Callers", exact=True).wait_for()
                assert await page.get_by_role("button", name="Make the key").count() == 0
                await shot(page, "company-signed-in")
                await page.get_by_role("button", name="Sign out").click()
                await page.get_by_role("link", name="Sign in with Example Corp").wait_for()
            assert [one for one in problems if "40" not in one] == []
