"""A database of approvals that cannot be opened: nobody knows what was approved, so nothing is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.pins import StoredPins
from mcp_optimizer.domain.pins import ToolChange, TrustMode
from tests.unit.access.trust.test_keeper import MODES, POISONED, READ, Opening, keeper, names
from tests.unit.catalogs import running


async def test_nothing_of_a_blocked_server_is_used_while_the_database_of_approvals_cannot_be_opened(
    tmp_path: Path,
) -> None:
    opening = Opening(None)
    kept = PinKeeper(opening, MODES, 0.02, is_stored=True)
    for _ in range(2):
        admitted = await kept.admit(running("far", POISONED))
        assert (names(admitted), {tool.change for tool in admitted.held.values()}) == ([], {ToolChange.UNKNOWN})
    assert names(await kept.admit(running("near", READ))) == ["read"]
    # What was seen meanwhile with another mode was approved by nobody.
    kept.use_modes({"far": TrustMode.BLOCK, "near": TrustMode.BLOCK})
    assert names(await kept.admit(running("near", READ))) == []
    database = await open_database(tmp_path / "catalog.db")
    stored = StoredPins(database)
    earlier = keeper(stored)
    await earlier.admit(running("far", READ))
    await earlier.settled()
    opening.store = stored
    async with asyncio.timeout(10):
        while "far" not in await kept.decided():
            pass
    assert names(await kept.admit(running("far", POISONED))) == []
    assert names(await kept.admit(running("far", READ))) == ["read"]
    await kept.settled()
    await database.close()
