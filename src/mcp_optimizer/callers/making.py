"""Makes a key and stores it. Called by the command for keys and by the dashboard, which show its text once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from mcp_optimizer.callers.keys import Wanted, new_key
from mcp_optimizer.domain.api_key import ApiKey
from mcp_optimizer.errors import ConfigurationError, quoted

MOST_KEYS = 10_000
"""Living keys. A gateway has all of them in memory."""


class NewKeys(Protocol):
    """Where new keys are kept."""

    async def add(self, key: ApiKey, most: int) -> str: ...


async def make_key(stored: NewKeys, wanted: Wanted) -> tuple[ApiKey, str]:
    """The new key and its text; raises ConfigurationError if there cannot be such a key."""
    key, text = new_key(wanted, datetime.now(UTC))
    problem = await stored.add(key, MOST_KEYS)
    if problem == "name":
        raise ConfigurationError(
            f"There is a key {quoted(key.name)} already. Choose another name, or end that one first with "
            f"`mcp-optimizer key revoke {quoted(key.name)}`."
        )
    if problem == "many":
        raise ConfigurationError(f"There are {MOST_KEYS:,} keys already. Revoke some that are no longer needed.")
    return key, text
