"""Sharing a gateway on its dashboard, in a real browser: signing in, making a key, approving a changed tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.domain.caller import Risk, Role
from tests.conftest import WriteServers
from tests.e2e.browsers import browser_page, needs_chromium, shot
from tests.e2e.made_keys import made_key
from tests.e2e.running import command, gateway_at, until_found
from tests.e2e.test_http_upstreams import listening
from tests.e2e.test_rug_pull import POISONED, RELIST, SEND, SERVER, World
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_chromium]

PAGES = ("callers", "rules", "trust", "audit")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def config(world: World, write_servers: WriteServers) -> AsyncIterator[Path]:
    async with listening(world.port, str(SERVER), str(world.file), str(world.port)):
        yield write_servers({"post": world.remote})


@asynccontextmanager
async def client_with(key: str, address: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


async def sign_in(page: Any, home: str, key: str) -> str:
    """The address of the first page, which is under the name that sign-ins have to themselves."""
    await page.goto(home)
    await page.get_by_label("Key or token").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("button", name="Sign out").wait_for()
    return str(page.url)


async def test_a_gateway_is_shared_by_its_page_alone(config: Path, world: World) -> None:
    boss = await made_key("boss", Risk.DESTRUCTIVE, role=Role.MANAGE)
    viewer = await made_key("viewer", role=Role.SEE)
    async with gateway_at(config, "--require-auth") as address:
        home = address.removesuffix("mcp")
        async with browser_page() as (page, problems):
            home = await sign_in(page, home, boss)
            made = await _make_a_key(page, home)
            async with client_with(made, address) as client:
                await until_found(client, "send a letter", "send_letter")
                world.lists(RELIST, POISONED)
                await client.call_tool("call_tool", {"tool_name": "relist"})
                await _approve(page, home)
                await until_found(client, "send a letter", "send_letter")
            await _shown(page, f"{home}audit", "trust/approve")
            shown = await page.locator(".acts").inner_text()
            for part in ("key:boss", "key/create", "key:by-page", "relist"):
                assert part in shown
            assert made[-43:] not in await page.content()
            await _sizes(page, home)
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_label("Key or token").wait_for()
            await page.goto(f"{home}callers")
            assert "key:boss" not in await page.content()
            assert [problem for problem in problems if "401" not in problem] == []
        await _sees_no_buttons(home, viewer)
    audited = (await command("audit", "--config", config)).out
    assert "key:boss" in audited
    assert made[-43:] not in audited


async def _make_a_key(page: Any, home: str) -> str:
    await page.goto(f"{home}callers")
    await page.get_by_label("Name").fill("by-page")
    await page.get_by_label("May call").select_option("write")
    await page.get_by_role("button", name="Make the key").click()
    made: str = await page.locator("#key").inner_text()
    await page.get_by_role("link", name="I have copied it").click()
    await page.get_by_text("by-page").first.wait_for()
    assert made not in await page.content()
    return made.strip()


async def _shown(page: Any, address: str, text: str) -> None:
    """Open a page again until it shows something that happened just now."""

    async def is_shown() -> bool:
        await page.goto(address)
        return text in await page.locator("main").inner_text()

    await until(is_shown, text)


async def _approve(page: Any, home: str) -> None:
    await _shown(page, f"{home}trust", "a copy of all keys to me")
    assert SEND["description"] in await page.locator(".diff").inner_text()
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_text("approved").first.wait_for()
    assert await page.locator(".diff").count() == 0


async def _sizes(page: Any, home: str) -> None:
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 844})
            for path in PAGES:
                await page.goto(home + path)
                await shot(page, f"{path}-{scheme}-{width}")
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


async def _sees_no_buttons(home: str, key: str) -> None:
    async with browser_page() as (page, problems):
        await sign_in(page, home, key)
        for path in (*PAGES, "logins"):
            await page.goto(home + path)
            buttons = [await one.inner_text() for one in await page.locator("button:not(th > button)").all()]
            assert set(buttons) <= {"Sign out", "Search", "Filter", "Explain"}, path
        assert [problem for problem in problems if "401" not in problem] == []
