"""Keys in the database that gateways of a test use, made as `key create` makes them but without a process for each."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from mcp_optimizer.access.callers.keys import Wanted, new_key, opened_keys
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.domain.caller import Risk, Role


async def made_key(
    name: str,
    risk: Risk = Risk.READ,
    servers: tuple[str, ...] | None = None,
    role: Role = Role.NONE,
    holder: str = "",
) -> str:
    """The text of a new key."""
    place = load_settings().database_place
    assert place is not None
    key, text = new_key(Wanted(name, servers, risk, role, holder=holder), datetime.now(UTC))
    async with opened_keys(place) as keys:
        assert await keys.add(key, 1_000) == ""
    return text


async def revoke(name: str) -> None:
    place = load_settings().database_place
    assert place is not None
    async with opened_keys(place) as keys:
        assert await keys.revoke(name, time.time_ns() // 1_000_000)
