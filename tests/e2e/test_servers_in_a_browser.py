"""Servers are looked after in a real browser: add, log in, try, disable, restart, undo, in one journey."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PLAIN_SERVER, WriteServers, plain_server
from tests.e2e.browsers import allow_login, browser_page, enter, needs_chromium, shot
from tests.e2e.running import gateway_at
from tests.servers.login_world import LoginWorld, login_world
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_chromium]

SECRET = "a value that nobody may read"
PAGES = (
    "servers",
    "servers/time",
    "servers/time/remove",
    "tools/time/echo",
    "tools/time/echo?as=json",
    "search?q=echo",
)


@pytest.fixture
def world() -> Iterator[LoginWorld]:
    with login_world(seconds=600) as world:
        yield world


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"time": plain_server("time")})


async def test_servers_are_looked_after_by_the_page_alone(config: Path, world: LoginWorld) -> None:
    before = config.read_bytes()
    async with gateway_at(config), browser_page() as (page, problems):
        home = await enter(page, config)
        await page.get_by_role("link", name="Servers", exact=True).click()
        await _add_by_address(page, world)
        assert json.loads(config.read_text())["mcpServers"]["notes"] == {"url": world.server_url}
        await _log_in(page, home, world)
        await _try(page, home)
        await _disable_restart_and_undo(page, home, config)
        await _add_by_command(page, home, config)
        await _remove_and_undo(page, home, config)
        assert not [secret for secret in (*world.secrets(), SECRET) if secret in await page.content()]
        assert [problem for problem in problems if world.issuer not in problem] == []
    assert before != config.read_bytes()


async def _state(page: Any, wanted: str) -> None:
    """The page tells it by itself, without being loaded again."""
    await page.locator("#now .state", has_text=wanted).first.wait_for(timeout=30_000)


async def _add_by_address(page: Any, world: LoginWorld) -> None:
    # The keyboard alone is enough.
    await page.locator("#add > summary").focus()
    await page.keyboard.press("Enter")
    await page.get_by_label("Name", exact=True).fill("notes")
    await page.get_by_label("Address").fill(world.server_url)
    await page.get_by_role("button", name="Add the server").click()
    await page.get_by_role("heading", name="notes").wait_for()
    await _state(page, "login needed")
    assert "Added notes" in await page.locator(".undo").inner_text()
    await shot(page, "server-wants-login")


async def _log_in(page: Any, home: str, world: LoginWorld) -> None:
    await page.get_by_role("link", name="Log in or out").click()
    await page.get_by_role("button", name="Log in").click()
    await allow_login(page, world.issuer)
    await page.goto(f"{home}servers/notes")
    await _state(page, "running")
    assert "logged in" in await page.locator("#now").inner_text()


async def _try(page: Any, home: str) -> None:
    button = page.get_by_role("button", name="Call the tool")

    async def is_there() -> bool:
        await page.goto(f"{home}tools/notes/whoami")
        return bool(await button.count())

    # A server runs a little before its tools are in the catalog.
    await until(is_there, "the tool is in the catalog", timeout=30)
    await button.click()
    await page.get_by_role("heading", name="Result").wait_for()
    await page.goto(f"{home}tools/time/echo")
    await page.get_by_label("value").fill("Grüße <b>\nand more")
    await page.get_by_role("button", name="Call the tool").click()
    shown = page.locator("#result pre").first
    assert json.loads(await shown.inner_text())["arguments"] == {"value": "Grüße <b>\nand more"}
    assert await page.get_by_label("value").input_value() == "Grüße <b>\nand more"
    assert "Tokens" in await page.locator("#result").inner_text()
    await shot(page, "trial")


async def _disable_restart_and_undo(page: Any, home: str, config: Path) -> None:
    before = config.read_bytes()
    await page.goto(f"{home}servers/time")
    await page.get_by_role("button", name="Disable – time").click()
    await _state(page, "disabled")
    assert config.read_bytes() != before
    await page.get_by_role("button", name="Undo").click()
    await page.get_by_role("heading", name="Servers", exact=True).wait_for()
    assert config.read_bytes() == before
    await page.goto(f"{home}servers/time")
    await _state(page, "running")
    await page.get_by_role("button", name="Restart – time").click()
    await page.locator("#log", has_text="is restarted on request").wait_for(timeout=30_000)
    await _state(page, "running")
    await shot(page, "server")


async def _add_by_command(page: Any, home: str, config: Path) -> None:
    await page.goto(f"{home}servers")
    await page.locator("#add > summary").click()
    await page.get_by_label("Name", exact=True).fill("more")
    await page.get_by_label("Command").fill(sys.executable)
    await page.get_by_label("Arguments").fill(f"{PLAIN_SERVER}\nmore")
    await page.get_by_label("Name of secret 1").fill("API_KEY")
    await page.get_by_label("Value of secret 1").fill(SECRET)
    await page.get_by_role("button", name="Add the server").click()
    await page.get_by_role("heading", name="more").wait_for()
    await _state(page, "running")
    assert SECRET not in config.read_text()
    assert SECRET not in await page.content()


async def _remove_and_undo(page: Any, home: str, config: Path) -> None:
    before = config.read_bytes()
    await page.get_by_role("link", name="Remove").click()
    await page.get_by_role("button", name="Remove – more").click()
    await page.get_by_role("heading", name="Servers", exact=True).wait_for()
    assert "more" not in json.loads(config.read_text())["mcpServers"]
    assert await page.get_by_role("link", name="more", exact=True).count() == 0
    await page.get_by_role("button", name="Undo").click()
    await page.get_by_role("link", name="more", exact=True).wait_for()
    assert config.read_bytes() == before


async def test_a_broken_edit_is_told_and_the_log_is_followed(config: Path) -> None:
    async with gateway_at(config), browser_page() as (page, _):
        good = config.read_text()
        home = await enter(page, config)
        config.write_text(good[:-2] + ",,}")
        await page.goto(f"{home}servers")

        async def is_told() -> bool:
            await page.reload()
            return bool(await page.get_by_text("cannot be used").count())

        await until(is_told, "the edit is told", timeout=30)
        shown = await page.locator(".notice").inner_text()
        assert "line" in shown
        assert "what runs is the version before" in shown
        await shot(page, "broken-edit")


async def test_pages_of_servers_fit_both_themes_and_a_phone(config: Path) -> None:
    async with gateway_at(config):
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
            async with browser_page(scheme, width, 844) as (page, problems):
                home = await enter(page, config)
                for path in PAGES:
                    await page.goto(home + path)
                    assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
                await page.goto(f"{home}servers")
                await page.locator("#add > summary").click()
                assert await page.evaluate("document.documentElement.scrollWidth") <= width
                await shot(page, f"servers-{scheme}-{width}")
                assert problems == []
