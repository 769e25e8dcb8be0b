"""Counts which tools were called after which searches, as a small prior for later searches.

Keeps hashes and counts, no text. The catalog counts and stores them; the engine asks for the prior. The prior decides
between near equals: its cap is well below the difference between a better and a worse match.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.lexical import Floats

MOST_PRIOR: Final = 0.03
"""Maximum that use adds to a score, in which a cosine counts up to 1. Only enough to decide between near equals."""

MOST_TERMS: Final = 12
_MOST_COUNT: Final = 1_000
_DOUBT: Final = 3.0
"""How many calls of other tools are assumed for each term, because one call proves little."""


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
        """The prior of each of these tools (server and name), from 0 to `MOST_PRIOR`; None if there is none."""
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

    def _add(self, term: str, tool: str, count: int) -> None:
        tools = self._counts.setdefault(term, {})
        self._pairs += tool not in tools
        tools[tool] = min(tools.get(tool, 0) + count, _MOST_COUNT)

    def _forget(self) -> None:
        """Drop the rarer half. Pairs that occur again are soon counted again."""
        ordered = sorted(((count, term, tool) for term, tools in self._counts.items() for tool, count in tools.items()))
        self._counts, self._pairs = {}, 0
        for count, term, tool in ordered[len(ordered) // 2 :]:
            self._add(term, tool, count)
