"""The dashboard in a real browser: quick with ten thousand tools, live, searchable and harmless, in both themes and on
a phone. Screenshots are saved in .artefacts/."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client

from tests.conftest import WriteServers, plain_server
from tests.e2e.browsers import ARTEFACTS, browser_page, needs_chromium, shot
from tests.e2e.running import gateway_at
from tests.servers.plain import HOSTILE

MANY = 10_000

pytestmark = [pytest.mark.slow, needs_chromium]


@asynccontextmanager
async def gateway(config: Path, *options: object) -> AsyncIterator[str]:
    """The dashboard's address, once all listed tools are in the catalog."""
    async with gateway_at(config, *options) as address:
        home = address.removesuffix("mcp")
        async with httpx2.AsyncClient(base_url=home, timeout=30) as http, asyncio.timeout(90):
            while f"{MANY + 10:,}</strong> tools" not in (await http.get("/")).text:
                await asyncio.sleep(0.2)
        yield home


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers(
        {
            "many": plain_server("many", "--tools", MANY),
            "hostile": plain_server("hostile", "--mode", "hostile"),
            "gone": plain_server("gone", "--mode", "exit"),
        }
    )


async def test_the_dashboard_in_a_browser(config: Path) -> None:
    async with gateway(config) as home:
        await _loads_quickly_and_updates_live(home)
        await _search_and_tools(home)
        await _themes_and_sizes(home)


async def _loads_quickly_and_updates_live(home: str) -> None:
    async with browser_page() as (page, problems):
        taken = []
        for _ in range(5):
            await page.goto(home, wait_until="load")
            timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
            taken.append(await page.evaluate(timing))
        ARTEFACTS.mkdir(exist_ok=True)
        (ARTEFACTS / "load-times.txt").write_text(f"{MANY:,} tools, ms to load: {[round(ms) for ms in taken]}\n")
        # Only the quickest load counts, because the machine may be busy with something else.
        assert min(taken) < 1_000, taken
        await page.locator("#live-state", has_text=re.compile("^connected$")).wait_for()
        assert await page.locator("#figures .figure").count() == 0
        async with Client(f"{home}mcp") as client:
            await client.call_tool("find_tool", {"tool_description": "perform action number 7"})
            await client.call_tool("call_tool", {"tool_name": "many_action_7", "parameters": {"id": "1"}})
        row = page.locator("#live tbody tr", has_text="many_action_7").first
        await row.wait_for(timeout=10_000)
        # The figures appear without a reload too.
        await page.locator("#figures .figure.main").wait_for(timeout=30_000)
        assert "%" in await page.locator("#figures .figure.main dd").first.inner_text()
        assert "it exited with code 1" in await page.locator(".servers").inner_text()
        await page.locator("#pause").click()
        assert await page.locator("#pause").get_attribute("aria-pressed") == "true"
        await shot(page, "overview-light")
        assert problems == []


async def _search_and_tools(home: str) -> None:
    async with browser_page() as (page, problems):
        await page.goto(home)
        # The keyboard alone is enough to search.
        await page.keyboard.press("/")
        await page.keyboard.type("perform action number 4711")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/search?**")
        hits = page.locator(".hits > li")
        assert await hits.count() >= 1
        assert "likely to answer" in await hits.first.inner_text()
        await shot(page, "search")
        await page.goto(f"{home}tools/hostile/innocent")
        shown = await page.locator("main").inner_text()
        assert "<script>window.hacked = 1</script>" in shown
        assert "‹U+202E›elttil a ma I‹U+202C›" in shown
        assert HOSTILE[:20] in await page.locator(".description").inner_text()
        await shot(page, "hostile-tool")
        await page.goto(f"{home}search?q=elttil+here+script")
        await page.goto(f"{home}catalog?server=hostile")
        await page.goto(f"{home}catalog?page=50")
        assert await page.locator("tbody tr").count() == 100
        assert await page.evaluate("window.hacked") is None
        assert problems == []


async def _themes_and_sizes(home: str) -> None:
    colours = {}
    for name, scheme, width in (("dark", "dark", 1280), ("phone-light", "light", 390), ("phone-dark", "dark", 390)):
        async with browser_page(scheme, width, 844) as (page, problems):
            await page.goto(home)
            colours[name] = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            await shot(page, f"overview-{name}")
            for path in ("", "catalog", "search?q=action", "tools/hostile/innocent"):
                await page.goto(home + path)
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert problems == []
    assert colours["dark"] == colours["phone-dark"] != colours["phone-light"]
