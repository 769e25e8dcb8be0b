"""Who the owner of a gateway is: whoever reaches its private socket, and nobody who merely reaches its port."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest
from mcp import Client

from tests.conftest import ROOT, WriteServers, plain_server
from tests.e2e.browsers import browser_page, enter, needs_chromium, shot
from tests.e2e.running import command, entrance, gateway_at, sent_to, until_found
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
    async with gateway_at(config) as address, httpx2.AsyncClient(headers=OWN_PAGE, timeout=60) as mine:
        home, (link, host) = address.removesuffix("/mcp"), sent_to(await entrance(config))
        assert re.fullmatch(rf"[0-9a-f]{{32}}\.localhost:{urlsplit(home).port}", host["Host"])
        assert (await mine.get(link, headers=host)).status_code == 200
        assert (await mine.post(f"{home}/servers/time/disable", headers=host)).status_code == 303
        async with httpx2.AsyncClient(headers=OWN_PAGE) as other:
            assert (await other.get(link, headers=host)).status_code == 401
            assert (await other.post(f"{home}/servers/time/enable", headers=host)).status_code == 401
        seen = await command("audit", "--config", config, "--json")
        entries = [json.loads(line) for line in seen.out.splitlines()]
        acts = [one for one in entries if one["method"] == "server/disable"]
        assert [one["caller"] for one in acts] == ["local"]


async def test_a_sign_in_holds_at_every_worker(config: Path) -> None:
    async with gateway_at(config, "--workers", 2) as address, httpx2.AsyncClient(headers=OWN_PAGE, timeout=60) as mine:
        home = address.removesuffix("/mcp")
        link, host = sent_to(await entrance(config))
        assert (await mine.get(link, headers=host)).status_code == 200
        for _ in range(12):
            # Each with a connection of its own, which any worker may take.
            answer = await mine.get(f"{home}/callers", headers={**host, "Connection": "close"})
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
        assert f".localhost:{urlsplit(address).port}/enter?ticket=" in place.read_text()


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
        await page.wait_for_url(lambda address: urlsplit(address).path == "/")
        await page.get_by_text("local manage").wait_for()
        await page.get_by_role("link", name="Servers", exact=True).click()
        await page.get_by_text("Add a server").wait_for()


@needs_chromium
@pytest.mark.promise("the-owner-proves-it")
async def test_no_other_program_of_this_machine_is_sent_the_sign_in(config: Path) -> None:
    async with gateway_at(config) as address, _listener() as (seen, port), browser_page() as (page, _):
        await enter(page, config)
        name = urlsplit(page.url).hostname
        assert [one["domain"] for one in await page.context.cookies()] == [name]
        for host in ("127.0.0.1", "localhost", "x.localhost"):
            await page.goto(f"http://{host}:{port}/")
        await page.goto(address.removesuffix("mcp"))
        assert "Sign out" not in await page.content()
        assert name not in await page.content()
    assert len(seen) >= 3
    assert not [one for one in seen if "mcp-optimizer" in one or str(name) in one]


@needs_chromium
async def test_a_browser_that_knows_no_such_names_is_led_to_the_address(config: Path) -> None:
    async with gateway_at(config) as address, browser_page() as (page, _):
        done = await command("dashboard", "--config", config, "--no-browser", "--by-address")
        assert done.out.startswith(f"{address.removesuffix('mcp')}enter?ticket=")
        await page.goto(done.out.strip())
        await page.wait_for_url(address.removesuffix("mcp"))
        await page.get_by_text("local manage").wait_for()


@asynccontextmanager
async def _listener() -> AsyncIterator[tuple[list[str], int]]:
    """Another program of this machine: the requests that it is sent, and its port."""
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield seen, server.sockets[0].getsockname()[1]


@pytest.mark.promise("the-owner-proves-it")
async def test_no_browser_is_sent_to_a_program_at_the_other_address_of_this_machine(config: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as squatter:
        squatter.setblocking(False)
        port = squatter.getsockname()[1]
        async with gateway_at(config, "--http", f"127.0.0.1:{port}"):
            done = await command("dashboard", "--config", config, "--no-browser")
            assert (done.code, "ticket" in done.out) == (2, False)
            assert f"Another program listens at [::1]:{port}" in done.err
            done = await command("dashboard", "--config", config, "--no-browser", "--by-address")
            assert done.out.startswith(f"http://127.0.0.1:{port}/enter?ticket=")


@pytest.mark.promise("the-owner-proves-it")
@pytest.mark.parametrize("workers", [1, 2])
async def test_nobody_else_can_listen_where_the_name_of_the_dashboard_leads(config: Path, workers: int) -> None:
    async with gateway_at(config, "--workers", workers):
        link = urlsplit(await entrance(config))
        assert link.hostname is not None
        assert link.hostname.endswith(".localhost")
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("::1", link.port), family=socket.AF_INET6)
