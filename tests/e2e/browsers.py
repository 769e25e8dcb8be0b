"""A real browser for tests: Chromium, driven by playwright. Screenshots are saved in .artefacts/."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT
from tests.e2e.running import entrance

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
ARTEFACTS = ROOT / ".artefacts"

needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium here: apt-get install chromium")


@asynccontextmanager
async def browser_page(
    scheme: str = "light", width: int = 1280, height: int = 900
) -> AsyncIterator[tuple[Any, list[str]]]:
    """A page, and every problem that the browser reports."""
    problems: list[str] = []
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            context = await browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            context.set_default_timeout(60_000)
            page = await context.new_page()
            page.on("console", lambda line: _said(line, problems))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: _local(request.url, problems))
            page.on("dialog", lambda dialog: problems.append(dialog.message))
            yield page, problems
        finally:
            await browser.close()


async def enter(page: Any, config: Path) -> str:
    """Sign the page in as the owner of the gateway that runs with these servers, until its first page is there; returns
    the address of that.

    The page that gives the cookie goes on by itself: a test that went elsewhere meanwhile would race with it.
    """
    await page.goto(await entrance(config))
    await page.wait_for_url(lambda address: urlsplit(address).path == "/")
    return str(page.url)


async def allow_login(page: Any, issuer: str) -> str:
    """Go on to the issuer and back, in a page of its own; returns what that says in the end."""
    async with page.context.expect_page() as opened:
        await page.get_by_role("link", name=f"Continue to {issuer}").click()
    other = await opened.value
    await other.get_by_role("button", name="Allow").click()
    await other.get_by_role("heading", name="Logged in", exact=True).wait_for()
    said = str(await other.locator("main").inner_text())
    await other.close()
    return said


def _said(line: Any, problems: list[str]) -> None:
    if line.type in ("error", "warning"):
        problems.append(f"{line.text} ({line.location['url']})")


def _local(url: str, problems: list[str]) -> None:
    host = urlsplit(url).hostname or ""
    if host not in ("127.0.0.1", "localhost") and not host.endswith(".localhost"):
        problems.append(f"asked for {url}")


async def shot(page: Any, name: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)
