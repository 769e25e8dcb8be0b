"""Who the owner of a gateway is: whoever reaches its private socket, and nobody who merely reaches its port."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from mcp import Client

from tests.conftest import ROOT, WriteServers, plain_server
from tests.e2e.browsers import browser_page, needs_chromium, shot
from tests.e2e.running import command, entrance, gateway_at, until_found
from tests.waiting import until

FETCHING = {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "fetching.py")]}
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}

pytestmark = pytest.mark.slow


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"web": FETCHING, "time": plain_server("time")})


@pytest.mark.promise("the-owner-proves-it")
async def test_a_tool_that_sends_http_requests_changes_nothing_on_the_dashboard(config: Path, tmp_path: Path) -> None:
    before, made = config.read_bytes(), tmp_path / "made"
    program = {"name": "shell", "command": "touch", "args": str(made)}
    async with gateway_at(config) as address, Client(address) as client:
        home = address.removesuffix("/mcp")
        tricks: list[dict[str, str]] = [
            {},
            {"Origin": home},
            {"Sec-Fetch-Site": "none"},
            {"Sec-Fetch-Site": "same-origin"},
            {"Authorization": "Basic x"},
            {"Authorization": "Bearer", "Origin": home},
            {"X-API-Key": "", "Origin": home},
            {"Cookie": "mcp-optimizer=; __Host-mcp-optimizer=", "Origin": home},
            {"X-Forwarded-For": "127.0.0.1", "Origin": home},
        ]
        await until_found(client, "send an HTTP request", "http_request")
        for headers in tricks:
            for path, fields in (
                ("/servers", program),
                ("/callers/new", {"name": "mine", "role": "manage", "risk": "destructive"}),
                ("/servers/undo", {}),
                ("/servers/time/disable", {}),
                ("/trust/time/reset", {}),
            ):
                seen = await _sent(client, "POST", home + path, headers, urlencode(fields))
                assert seen["status"] in (400, 401), (path, headers, seen)
            for path in ("/audit", "/servers/time", "/callers", "/rules", "/trust", "/logins"):
                seen = await _sent(client, "GET", home + path, headers)
                assert seen["status"] in (400, 401), (path, headers)
        assert config.read_bytes() == before
        assert not made.exists()
        listed = await command("key", "list", "--json")
        assert json.loads(listed.out)["keys"] == []


async def _sent(client: Client, method: str, url: str, headers: dict[str, str], body: str | None = None) -> Any:
    asked: dict[str, Any] = {"method": method, "url": url, "headers": headers}
    if body is not None:
        asked |= {"body": body, "headers": {**headers, "Content-Type": "application/x-www-form-urlencoded"}}
    found = await client.call_tool("call_tool", {"tool_name": "http_request", "parameters": asked})
    return found.structured_content


async def test_the_command_lets_one_browser_in_and_nobody_after_it(config: Path) -> None:
    async with gateway_at(config) as address, httpx2.AsyncClient(headers=OWN_PAGE) as mine:
        home, link = address.removesuffix("/mcp"), await entrance(config)
        assert link.startswith(f"{home}/enter?ticket=")
        assert (await mine.get(link)).status_code == 200
        assert (await mine.post(f"{home}/servers/time/disable")).status_code == 303
        async with httpx2.AsyncClient(headers=OWN_PAGE) as other:
            assert (await other.get(link)).status_code == 401
            assert (await other.post(f"{home}/servers/time/enable")).status_code == 401
        seen = await command("audit", "--config", config, "--json")
        entries = [json.loads(line) for line in seen.out.splitlines()]
        acts = [one for one in entries if one["method"] == "server/disable"]
        assert [one["caller"] for one in acts] == ["local"]


async def test_a_sign_in_holds_at_every_worker(config: Path) -> None:
    async with gateway_at(config, "--workers", 2) as address, httpx2.AsyncClient(headers=OWN_PAGE) as mine:
        home = address.removesuffix("/mcp")
        assert (await mine.get(await entrance(config))).status_code == 200
        for _ in range(12):
            # Each with a connection of its own, which any worker may take.
            answer = await mine.get(f"{home}/callers", headers={"Connection": "close"})
            assert answer.status_code == 200


async def test_the_command_says_what_is_missing(config: Path) -> None:
    done = await command("dashboard", "--config", config)
    assert (done.code, "No gateway is running" in done.err) == (1, True)
    async with gateway_at(config, "--no-dashboard"):
        done = await command("dashboard", "--config", config, "--no-browser")
        assert (done.code, "has no dashboard" in done.err) == (1, True)


async def test_the_secret_is_in_no_command_line_and_in_no_file_that_others_read(config: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    browser.chmod(0o755)
    async with gateway_at(config) as address:
        done = await command("dashboard", "--config", config, env={"BROWSER": str(browser)})
        assert done.code == 0, done.err
        await until(seen.exists, "the browser was started")
        ticket = done.out.strip().partition("ticket=")[2]
        place = Path(seen.read_text().strip().removeprefix("file://"))
        assert ticket
        assert ticket not in seen.read_text()
        assert ticket in place.read_text()
        assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o077) == (0o600, 0)
        assert f"{address.removesuffix('mcp')}enter?ticket=" in place.read_text()


@needs_chromium
async def test_a_browser_that_opens_the_file_is_signed_in(config: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/seen\n')
    browser.chmod(0o755)
    async with gateway_at(config) as address, browser_page() as (page, _):
        home = address.removesuffix("mcp")
        await page.goto(f"{home}servers")
        await shot(page, "not-the-owner")
        assert "mcp-optimizer dashboard" in await page.content()
        await command("dashboard", "--config", config, env={"BROWSER": str(browser)})
        await until((tmp_path / "seen").exists, "the browser was started")
        await page.goto((tmp_path / "seen").read_text().strip())
        await page.wait_for_url(home)
        await page.get_by_text("local manage").wait_for()
        await page.get_by_role("link", name="Servers", exact=True).click()
        await page.get_by_text("Add a server").wait_for()
