"""Short descriptions written by an endpoint: requested in the background, once per definition, and stored.

Called by the refresher. Without an endpoint, or if it fails, nothing is stored here and words from the tools' own text
are used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.forms import StoredForms
    from mcp_optimizer.profiles.description_writer import DescriptionWriter

logger = logging.getLogger(__name__)

_BATCH = 20
"""Tools per request."""

_PAUSE_AFTER_FAILURE = 600.0
"""Seconds before an endpoint that failed is asked again."""


class WrittenDescriptions:
    """The written description of each definition, by hash."""

    def __init__(self, writer: DescriptionWriter | None, opened: Callable[[], Awaitable[StoredForms | None]]) -> None:
        self._writer = writer
        self._opened = opened
        self._texts: dict[str, str] = {}
        self._not_before = 0.0

    def texts(self) -> Mapping[str, str]:
        return self._texts

    async def recall(self, tools: Sequence[CatalogTool]) -> None:
        """Load what an earlier start stored."""
        stored = await self._opened() if self._writer is not None else None
        if stored is None or self._writer is None:
            return
        unknown = [tool.record.definition_hash for tool in tools if tool.record.definition_hash not in self._texts]
        if not unknown:
            return
        try:
            self._texts |= await stored.descriptions(unknown, self._writer.name)
        except CatalogError as error:
            logger.warning("Cannot read stored descriptions: %s. Requesting them again.", error)

    async def ask(self, tools: Sequence[CatalogTool]) -> bool:
        """Request descriptions for tools that have none; returns whether there are new ones."""
        loop = asyncio.get_running_loop()
        missing = {
            tool.record.definition_hash: tool for tool in tools if tool.record.definition_hash not in self._texts
        }
        if self._writer is None or not missing or loop.time() < self._not_before:
            return False
        before = len(self._texts)
        hashes = list(missing)
        for start in range(0, len(hashes), _BATCH):
            batch = hashes[start : start + _BATCH]
            details = [missing[key].record.details for key in batch]
            try:
                written = await asyncio.to_thread(self._writer.write, details)
            except ConnectionError as error:
                logger.warning("%s. Using words from the tools themselves.", error)
                self._not_before = loop.time() + _PAUSE_AFTER_FAILURE
                break
            await self._keep(dict(zip(batch, written, strict=True)))
        return len(self._texts) > before

    async def _keep(self, texts: dict[str, str]) -> None:
        self._texts |= texts
        stored = await self._opened()
        if stored is None or self._writer is None:
            return
        try:
            await stored.write_descriptions(texts, self._writer.name)
        except CatalogError as error:
            logger.warning("Cannot store written descriptions: %s. Everything else works.", error)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
