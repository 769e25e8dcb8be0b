"""Rotates the key of a database again and again, until it is killed. Run by a test, as a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.unit.identity.vaults import opened


async def rotate_forever(place: Path) -> None:
    async with opened(place) as vault:
        while True:
            await vault.rotate()
            print("rotated", flush=True)


if __name__ == "__main__":
    asyncio.run(rotate_forever(Path(sys.argv[1])))
