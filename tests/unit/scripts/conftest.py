"""The rows of stored scripts, in a database of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.scripts import ScriptRows


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[ScriptRows]:
    database = await open_database(tmp_path / "catalog.db")
    yield ScriptRows(database)
    await database.close()
