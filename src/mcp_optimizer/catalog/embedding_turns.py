"""Whose turn it is to embed, among gateways that share a PostgreSQL: each tool is embedded once for all of them.

A gateway that has to wait reads what the others have stored meanwhile. It waits only as long as they get on: one that
holds its turn and does nothing is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.catalog import Catalog

logger = logging.getLogger(__name__)

_PAUSE = 0.25
"""Seconds between two looks at what another gateway has done."""

_PATIENCE = 20.0
"""Seconds without any progress of others; a batch takes one or two."""


class EmbeddingTurns:
    """The turns of one gateway, for one server's tools."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[Catalog | None]],
        patience: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._patience = patience
        self._clock = clock
        self._progress_at = clock()
        self.has_others = False
        """Whether somebody else may embed the same tools."""

    def progressed(self) -> None:
        """Somebody embedded some of them."""
        self._progress_at = self._clock()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[bool]:
        """Whether it is this gateway's turn; after a pause, if it is not."""
        catalog = await self._opened()
        try:
            turn = await catalog.embedding_turn() if catalog is not None else None
        except CatalogError as error:
            logger.debug("Whether another gateway embeds is not known: %s", error)
            catalog = turn = None
        self.has_others = catalog is not None
        is_over = self._clock() - self._progress_at > self._patience
        is_ours = turn is not None or catalog is None or is_over
        if not is_ours:
            await asyncio.sleep(_PAUSE)
        try:
            yield is_ours
        finally:
            if turn is not None:
                await turn.release()
