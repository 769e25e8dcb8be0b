"""A gateway with a database and keys for each role, and browsers and programs that visit its dashboard."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from mcp_optimizer.access.callers.keys import Wanted, make_key, opened_keys
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.dashboard.sign_ins import SignIns
from mcp_optimizer.db.audit import AuditQuery, StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.domain.caller import Role

_LEADS_TO = re.compile(r"url=(http://[0-9a-f]{32}\.localhost(?::\d+)?)(/enter\?ticket=[\w-]+)")
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


async def ticket_of(optimizer: Optimizer) -> str:
    """What `mcp-optimizer dashboard` is given over the socket."""
    storage = optimizer.parts.storage
    return await SignIns(storage.sign_ins, breaker=storage.breaker).ticket()


async def let_in(client: httpx2.AsyncClient, optimizer: Optimizer) -> None:
    """Sign a browser in as the owner of the gateway."""
    answer = await client.get(f"/enter?ticket={await ticket_of(optimizer)}")
    assert answer.status_code == 200, answer.text


async def sign_in(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    """With a form, as a browser does: it goes on where the page leads, and stays there."""
    answer = await client.post("/login", data={"token": text})
    if (leads := _LEADS_TO.search(answer.text)) is None:
        return answer
    client.base_url = httpx2.URL(leads[1])
    return await client.get(leads[2])


@dataclass(frozen=True)
class Gateway:
    """One that runs, with what opens its dashboard."""

    optimizer: Optimizer
    app: Any
    keys: dict[Role, str]
    place: Path

    @asynccontextmanager
    async def browser(
        self, role: Role | None = None, address: str = "http://localhost:8765"
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A browser, signed in with the key of a role."""
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url=address, headers=OWN_PAGE) as client:
            if role is not None:
                assert (await sign_in(client, self.keys[role])).status_code == 200
            yield client

    async def revoke(self, name: str) -> None:
        async with opened_keys(self.place) as keys:
            assert await keys.revoke(name, time.time_ns() // 1_000_000)

    async def audited(self) -> list[AuditEntry]:
        """All that was written so far."""
        database = await open_database(self.place)
        try:
            return await StoredAudit(database).read(AuditQuery(limit=1_000))
        finally:
            await database.close()


_MADE: list[tuple[bytes, dict[Role, str]]] = []
"""A database with a key for each role, and the keys, once a test has needed it."""


async def _with_keys(place: Path) -> dict[Role, str]:
    """The keys of a database, which is a copy of the first one unless there is one already."""
    if _MADE and not place.exists():
        database, keys = _MADE[0]
        place.write_bytes(database)
        return dict(keys)
    is_new = not place.exists()
    keys = {}
    async with opened_keys(place) as stored:
        for role in Role:
            keys[role] = (await make_key(stored, Wanted(f"{role}-key", role=role)))[1]
    if is_new:
        _MADE.append((place.read_bytes(), dict(keys)))
    return keys


@asynccontextmanager
async def gateway(
    place: Path, host: str = "127.0.0.1", specs: Sequence[ServerSpec] = (), **options: Any
) -> AsyncIterator[Gateway]:
    """A gateway that wants a key, unless the options say otherwise."""
    async with _running(place, await _with_keys(place), host, specs, **options) as made:
        yield made


@asynccontextmanager
async def another_gateway(first: Gateway, **options: Any) -> AsyncIterator[Gateway]:
    """One more on the database of another."""
    async with _running(first.place, first.keys, **options) as made:
        yield made


@asynccontextmanager
async def _running(
    place: Path, keys: dict[Role, str], host: str = "127.0.0.1", specs: Sequence[ServerSpec] = (), **options: Any
) -> AsyncIterator[Gateway]:
    given = {"encoder": "none", "database": str(place), "require_auth": True, "learn_from_use": False, **options}
    optimizer = Optimizer(specs, load_settings({**given, "learn_shapes": False}, {}))
    optimizer.start()
    try:
        yield Gateway(optimizer, optimizer.http_app(host), keys, place)
    finally:
        await optimizer.stop()
