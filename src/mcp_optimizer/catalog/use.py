"""Learns from use: which of the tools that a search returned was then called, by the same caller.

The gateway tells it of searches and calls and asks it for a prior; the database keeps the counts, under hashes, in the
background. It knows terms and tools, never texts or arguments, and a failing database costs only what it would keep.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.use import UseTable

logger = logging.getLogger(__name__)

_REMEMBERED = 600.0
"""Seconds after a search in which a call is what it led to."""

_MOST_CALLERS = 256


class UseStore(Protocol):
    """Where counts are kept."""

    async def read(self) -> tuple[bytes, dict[tuple[str, str], int]]: ...
    async def write(self, counts: dict[tuple[str, str], int], most: int) -> None: ...


@dataclass(frozen=True)
class _Search:
    terms: tuple[str, ...]
    tools: frozenset[tuple[str, str]]
    at: float


class LearnedUse:
    """The counts of one catalog, and what each caller searched for last. `most`: pairs that are kept."""

    def __init__(self, stored: Callable[[], Awaitable[UseStore | None]], most: int) -> None:
        self._stored = stored
        self._most = most
        self._table: UseTable | None = None
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._changed: dict[tuple[str, str], int] = {}
        self._writing = BackgroundTasks(logger, "Cannot write the counts of use")

    async def start(self) -> None:
        """Read what was learned before; without a database, what is learned is forgotten at the end."""
        try:
            stored = await self._stored()
            salt, counts = await stored.read() if stored is not None else (secrets.token_bytes(16), {})
        except CatalogError as error:
            logger.warning("The counts of use cannot be read: %s", error)
            salt, counts = secrets.token_bytes(16), {}
        self._table = UseTable(salt, self._most, counts)

    async def stop(self) -> None:
        """Write down the last of it."""
        await self._writing.settled()
        await self._write()

    def prior(self, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> Floats | None:
        """What use says of these tools for a search with these terms."""
        return self._table.prior(terms, tools) if self._table is not None else None

    def searched(self, caller: str, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> None:
        """A caller was given these tools."""
        self._searches.pop(caller, None)
        self._searches[caller] = _Search(tuple(terms), frozenset(tools), time.monotonic())
        while len(self._searches) > _MOST_CALLERS:
            self._searches.popitem(last=False)

    def called(self, caller: str, server: str, name: str) -> None:
        """A caller's call succeeded: if its last search returned the tool, that is what the search was for."""
        search = self._searches.get(caller)
        is_recent = search is not None and time.monotonic() - search.at < _REMEMBERED
        if self._table is None or search is None or not is_recent or (server, name) not in search.tools:
            return
        # Once a search: twenty calls in a loop are one choice.
        del self._searches[caller]
        self._changed |= self._table.count(search.terms, self._table.tool(server, name))
        if not self._writing:
            self._writing.spawn(self._write())

    async def _write(self) -> None:
        changed, self._changed = self._changed, {}
        if not changed:
            return
        try:
            if (stored := await self._stored()) is not None:
                await stored.write(changed, self._most)
        except CatalogError as error:
            logger.warning("The counts of use cannot be written: %s", error)
