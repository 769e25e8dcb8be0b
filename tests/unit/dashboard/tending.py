"""A gateway that follows a server file of real processes, and browsers on its dashboard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx2

from mcp_optimizer.access.callers.keys import Wanted, make_key, opened_keys
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.caller import Role
from tests.unit.dashboard.visiting import OWN_PAGE, let_in, sign_in
from tests.waiting import until

HEAD = "{\n  // Kept by hand.\n"


@dataclass(frozen=True)
class Tended:
    """A gateway, a browser on its dashboard, and its server file."""

    optimizer: Optimizer
    client: httpx2.AsyncClient
    file: Path
    app: Any

    @property
    def text(self) -> str:
        return self.file.read_text()

    @property
    def entries(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text.replace("// Kept by hand.", ""))["mcpServers"]
        return found

    def state(self, name: str) -> str:
        return next((str(state.status.value) for state in self.optimizer.servers() if state.name == name), "gone")

    async def until_state(self, name: str, wanted: str) -> None:
        await until(lambda: self.state(name) == wanted, f"{name} is {wanted}", timeout=30)

    async def page(self, path: str) -> str:
        """The page as people read it."""
        answer = await self.client.get(path)
        return unescape(answer.text)

    async def post(self, path: str, fields: Mapping[str, str] | None = None, **more: Any) -> httpx2.Response:
        return await self.client.post(path, data=dict(fields or {}), **more)


@asynccontextmanager
async def tended(
    folder: Path, entries: Mapping[str, Any], role: Role | None = None, *, is_owner: bool = True, **options: Any
) -> AsyncIterator[Tended]:
    """On loopback, for its owner or for anybody; with a role, for somebody who signed in with a key of it."""
    file, place = folder / "servers.json", folder / "catalog.db"
    file.write_text(HEAD + json.dumps({"mcpServers": dict(entries)}, indent=2)[2:] + "\n")
    given = {"encoder": "none", "database": str(place), "config": str(file), "learn_from_use": False, **options}
    key = ""
    if role is not None:
        given["require_auth"] = True
        async with opened_keys(place) as stored:
            _, key = await make_key(stored, Wanted("somebody", role=role))
    optimizer = Optimizer.from_settings(load_settings({**given, "learn_shapes": False, "http": "127.0.0.1:8765"}, {}))
    optimizer.start()
    try:
        await optimizer.wait_for_servers(30)
        app = optimizer.http_app("127.0.0.1")
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost:8765", headers=OWN_PAGE
        ) as client:
            if key:
                assert (await sign_in(client, key)).status_code == 200
            elif is_owner:
                await let_in(client, optimizer)
            yield Tended(optimizer, client, file, app)
    finally:
        await optimizer.stop()
