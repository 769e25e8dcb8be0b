"""Learns from use which of the tools that a search returned was then called, by the same caller, and with which of its
optional parameters.

The gateway reports searches and calls and asks for a prior; the counts are stored in the background. Only keyed hashes
and counts are kept, never texts or values. The prior decides only between nearly equal matches: its cap is well
below the difference between a better and a worse match.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.search.lexical import Floats

MOST_PRIOR: Final = 0.03
"""Maximum that use adds to a score, in which a cosine counts up to 1: decides only between nearly equal matches."""

MOST_TERMS: Final = 12
_MOST_COUNT: Final = 1_000
_LEAST_USUAL: Final = 2
"""Calls with a parameter from which on it is usual."""

_DOUBT: Final = 3.0
"""Calls of other tools that are assumed for each term, because a single call proves little."""


class UseTable:
    """Counts by term and tool, both as keyed hashes only. Keeps at most `most` pairs and forgets the rarest."""

    def __init__(self, salt: bytes, most: int, counts: Mapping[tuple[str, str], int] | None = None) -> None:
        self._salt = salt
        self._most = most
        self._counts: dict[str, dict[str, int]] = {}
        self._pairs = 0
        for (term, tool), count in (counts or {}).items():
            self._add(term, tool, count)

    def hashed(self, text: str) -> str:
        """The keyed hash of a term or a tool."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=8).hexdigest()

    def tool(self, server: str, name: str) -> str:
        """The keyed hash of a server's tool."""
        return self.hashed(f"{server}\0{name}")

    def count(self, terms: Iterable[str], tool: str) -> dict[tuple[str, str], int]:
        """Count one call of a tool after a search with these terms; returns the changed pairs with their counts."""
        changed: dict[tuple[str, str], int] = {}
        for term in list(dict.fromkeys(terms))[:MOST_TERMS]:
            hashed = self.hashed(term)
            self._add(hashed, tool, 1)
            changed[hashed, tool] = self._counts[hashed][tool]
        if self._pairs > self._most:
            self._forget()
        return changed

    def prior(self, terms: Iterable[str], tools: Sequence[tuple[str, str]]) -> Floats | None:
        """The prior of each of these tools (server and name), from 0 to `MOST_PRIOR`; None if no term is known."""
        known = [self._counts.get(self.hashed(term)) for term in list(dict.fromkeys(terms))[:MOST_TERMS]]
        if not any(known):
            return None
        hashes = [self.tool(server, name) for server, name in tools]
        shares = np.zeros((len(known), len(tools)), dtype=np.float32)
        for row, counts in enumerate(known):
            if counts:
                total = sum(counts.values()) + _DOUBT
                shares[row] = [counts.get(tool, 0) / total for tool in hashes]
        prior: Floats = np.float32(MOST_PRIOR) * shares.mean(axis=0)
        return prior

    def usual(self, parameters: Iterable[str], tool: str) -> list[str]:
        """Those of these parameters of a tool that calls had more than once, the most frequent first."""
        counted = [
            (-count, name)
            for name in parameters
            if (count := self._counts.get(self.hashed(_as_term(name)), {}).get(tool, 0)) >= _LEAST_USUAL
        ]
        return [name for _, name in sorted(counted, key=lambda pair: pair[0])]

    def _add(self, term: str, tool: str, count: int) -> None:
        tools = self._counts.setdefault(term, {})
        self._pairs += tool not in tools
        tools[tool] = min(tools.get(tool, 0) + count, _MOST_COUNT)

    def _forget(self) -> None:
        """Drop the rarer half of the pairs. Pairs that occur again are soon counted again."""
        ordered = sorted(((count, term, tool) for term, tools in self._counts.items() for tool, count in tools.items()))
        self._counts, self._pairs = {}, 0
        for count, term, tool in ordered[len(ordered) // 2 :]:
            self._add(term, tool, count)


def _as_term(parameter: str) -> str:
    """A parameter among terms. A term has no space."""
    return f"parameter {parameter}"


logger = logging.getLogger(__name__)

_REMEMBERED = 600.0
"""Seconds after a search within which a call is attributed to it."""

_MOST_CALLERS = 256


class UseStore(Protocol):
    """Stores the counts and the salt of their hashes."""

    async def read(self) -> tuple[bytes, dict[tuple[str, str], int]]: ...
    async def write(self, counts: dict[tuple[str, str], int], most: int) -> None: ...


@dataclass(frozen=True)
class _Search:
    terms: tuple[str, ...]
    tools: frozenset[tuple[str, str]]
    at: float


class LearnedUse:
    """The counts of one catalog, and each caller's last search. `most`: maximum pairs that are kept."""

    def __init__(self, stored: Callable[[], Awaitable[UseStore | None]], most: int) -> None:
        self._stored = stored
        self._most = most
        self._table: UseTable | None = None
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._changed: dict[tuple[str, str], int] = {}
        self._writing = BackgroundTasks(logger, "Cannot write the counts of use")

    async def start(self) -> None:
        """Read what was learned before; without a database, new counts are lost when the gateway stops."""
        try:
            stored = await self._stored()
            salt, counts = await stored.read() if stored is not None else (secrets.token_bytes(16), {})
        except CatalogError as error:
            logger.warning("The counts of use cannot be read: %s", error)
            salt, counts = secrets.token_bytes(16), {}
        self._table = UseTable(salt, self._most, counts)

    async def stop(self) -> None:
        """Write the last changes."""
        await self._writing.settled()
        await self._write()

    def prior(self, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> Floats | None:
        """The prior of these tools for a search with these terms; None if nothing is known."""
        return self._table.prior(terms, tools) if self._table is not None else None

    def searched(self, caller: str, terms: Sequence[str], tools: Sequence[tuple[str, str]]) -> None:
        """Remember the terms of a caller's search and the tools it returned."""
        self._searches.pop(caller, None)
        self._searches[caller] = _Search(tuple(terms), frozenset(tools), time.monotonic())
        while len(self._searches) > _MOST_CALLERS:
            self._searches.popitem(last=False)

    def usual(self, server: str, name: str, parameters: Iterable[str]) -> list[str]:
        """Those of these parameters of a tool that earlier calls had, the most frequent first."""
        return self._table.usual(parameters, self._table.tool(server, name)) if self._table is not None else []

    def called(self, caller: str, server: str, name: str, parameters: Iterable[str] = ()) -> None:
        """Count a successful call, and those of the tool's optional parameters that it had, if the caller's last search
        returned the tool.
        """
        search = self._searches.get(caller)
        is_recent = search is not None and time.monotonic() - search.at < _REMEMBERED
        if self._table is None or search is None or not is_recent or (server, name) not in search.tools:
            return
        # Count once per search: twenty calls in a loop are one choice.
        del self._searches[caller]
        tool = self._table.tool(server, name)
        self._changed |= self._table.count(search.terms, tool)
        self._changed |= self._table.count(map(_as_term, parameters), tool)
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
