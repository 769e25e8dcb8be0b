"""A caller over HTTP that logs in for itself, for the conformance suite's scenarios of logins. Used by `auth_client`.

The gateway acts at the scenario's server as each caller. The caller comes with a key and makes its login on the page
`/mine`, in a browser that returns to the gateway; a call that needs more permissions asks for them through the client,
whose user opens that address, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.domain.caller import Risk
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import LEGACY
from tests.e2e.running import http_gateway, said_in
from tests.waiting import until

_PATIENCE = 90
"""Seconds for each thing that is waited for, on a machine with much else to do."""
_SETTLED = 3.0
"""Seconds for which a login must be asked for: right after it was made, the server may still ask."""
_ANY = {"tool_description": "a tool for tests", "limit": 50, "detail": "schema"}
_ASKED = "log in on the page"
_MOST_LOGINS = 3
_FORM = {"Sec-Fetch-Site": "same-origin"}
_CONTINUE = re.compile(r'<a[^>]*href="([^"]+)"[^>]*>Continue to ')
_OPTIONS = ("--encoder", "none", "--require-auth")


class NotAllowed(Exception):
    """The person could not log in, or cannot call although it has."""


class Person:
    """Has a key, a browser, and a client that shows addresses."""

    def __init__(self, gateway: str, key: str, server: str) -> None:
        self._gateway = gateway
        self._key = {"Authorization": f"Bearer {key}"}
        self._origin = gateway.removesuffix("/mcp")
        self._page = f"{self._origin}/mine/{server}"
        self._under_way: list[asyncio.Task[None]] = []
        self.logins = 0

    async def log_in(self) -> None:
        """On the caller's own page; fails if the gateway or the issuer refuses."""
        async with self._browser() as browser:
            page = await browser.post(self._page, headers={**self._key, **_FORM})
            found = _CONTINUE.search(page.text)
            if found is None:
                raise NotAllowed(f"no login: {' '.join(page.text.split())[-400:]}")
            await self._visit(browser, unescape(found.group(1)), self._key)

    async def is_known(self) -> bool:
        """Whether the gateway has opened the database, in which the key is."""
        async with self._browser() as browser:
            return (await browser.get(f"{self._origin}/mine", headers=self._key)).status_code == 200

    async def elicit(self, _context: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        """The client shows the address, and its user goes there; both at the same time."""
        if not isinstance(asked, types.ElicitRequestURLParams) or self.logins >= _MOST_LOGINS:
            return types.ElicitResult(action="decline")
        self._under_way.append(asyncio.create_task(self._open(asked.url)))
        return types.ElicitResult(action="accept")

    async def done(self) -> None:
        """Wait until what the browser has begun is over."""
        await asyncio.gather(*self._under_way)

    @contextlib.asynccontextmanager
    async def client(self, mode: str) -> AsyncIterator[Client]:
        answers: Any = self.elicit
        async with httpx2.AsyncClient(headers=self._key, timeout=_PATIENCE, trust_env=False) as http:
            transport = streamable_http_client(self._gateway, http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=answers) as client:
                yield client

    async def _open(self, address: str) -> None:
        async with self._browser() as browser:
            await self._visit(browser, address, {})

    async def _visit(self, browser: httpx2.AsyncClient, address: str, signed_in: dict[str, str]) -> None:
        """Follow the address to the issuer, whose user allows everything, and back to the gateway."""
        self.logins += 1
        there = await browser.get(address)
        back = await browser.get(str(there.headers["location"]), headers=signed_in)
        if back.status_code != 200:
            raise NotAllowed(f"no login: {' '.join(back.text.split())[-400:]}")

    def _browser(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=_PATIENCE, trust_env=False, follow_redirects=False)


async def _use(config: Path, server: str, era: str, has_account: bool) -> None:
    os.environ["MCP_OPTIMIZER_DATABASE"] = str(config.with_name("catalog.db"))
    key = await made_key("ada", Risk.DESTRUCTIVE)
    async with http_gateway(config, *_OPTIONS) as (address, _):
        person = Person(address, key, server)
        await until(person.is_known, "the database is open", _PATIENCE)
        async with person.client("legacy" if era == LEGACY else "auto") as client:
            is_done = has_account and await _called(client)
            while not is_done:
                if person.logins >= _MOST_LOGINS:
                    raise NotAllowed(f"still not allowed after {_MOST_LOGINS} logins")
                await person.log_in()
                is_done = await _called(client)
        await person.done()


async def _called(client: Client) -> bool:
    """Whether the first tool of the server could be called; false if the caller has to log in again first."""
    found: list[str] = []
    asked_since = float("inf")

    async def is_decided() -> bool:
        nonlocal asked_since
        said = said_in(await client.call_tool("find_tool", _ANY))
        found[:] = [tool["name"] for tool in said.get("tools", [])]
        asked_since = min(asked_since, time.monotonic()) if _ASKED in said.get("note", "") else float("inf")
        return bool(found) or time.monotonic() - asked_since > _SETTLED

    await until(is_decided, "the caller finds the server's tools, or has to log in", _PATIENCE)
    called = {"tool_name": found[0], "parameters": {}} if found else {}
    return bool(found) and not (await client.call_tool("call_tool", called)).is_error


def run_with_own_login(config: Path, server: str, era: str, *, has_account: bool) -> None:
    """List and call the first tool of the server as a caller that logs in whenever that is needed. `has_account`: the
    gateway has an account at the server, and no person logs in.
    """
    asyncio.run(_use(config, server, era, has_account))
