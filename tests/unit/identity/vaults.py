"""A vault over a real database, as another process would open it too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.secrets import StoredSecrets
from mcp_optimizer.identity.vault import Keys, Vault, keys_of


@asynccontextmanager
async def opened(
    place: Path | str, environment: Mapping[str, str] | None = None, keys: Keys | None = None
) -> AsyncIterator[Vault]:
    database = await open_database(place)

    async def stored() -> StoredSecrets:
        return StoredSecrets(database)

    try:
        yield Vault(stored, keys or keys_of(place, environment or {}))
    finally:
        await database.close()
