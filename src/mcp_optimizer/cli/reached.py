"""The socket on which commands reach a gateway while it serves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.control.listener import ControlListener


@contextlib.asynccontextmanager
async def reached_by_commands(optimizer: Optimizer, address: str = "") -> AsyncIterator[ControlListener]:
    """Commands such as `find` and `logs` ask this gateway while it serves."""
    from mcp_optimizer.control.places import identity

    listener = optimizer.control(address)
    await listener.start(identity(optimizer.settings), os.environ)
    try:
        yield listener
    finally:
        await listener.stop()
