"""SQLAlchemy's asynchronous engines, for all modules of this room: without its ORM.

The package around the engines imports the ORM for its sessions, which nothing here uses: 7 MB, and a tenth of the
processor time of a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_optimizer.runtime.lazy import load_later

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio.engine import AsyncConnection, AsyncEngine, create_async_engine
else:
    load_later("sqlalchemy.ext.asyncio")
    from sqlalchemy.ext.asyncio.engine import AsyncConnection, AsyncEngine, create_async_engine

__all__ = ["AsyncConnection", "AsyncEngine", "create_async_engine"]
