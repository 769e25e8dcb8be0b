"""Indexes the tool names of one index: the spellings that a request may use, and the actions that the names state.

Pure. Built with the index; used by the ranker and the engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import destroys, name_actions
from mcp_optimizer.search.lexical import Integers
from mcp_optimizer.search.tool_texts import split_words
from mcp_optimizer.search.words import name_key, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IDENTIFIER = regex(r"\b(?:[^\W_]+(?:[_-]+[^\W_]+)+|[a-z]+(?:[A-Z][a-z0-9]*)+)\b")


def is_identifier(query: str) -> bool:
    """Whether a query contains an identifier (joined words) or is a single word."""
    return _IDENTIFIER.search(query) is not None or len(query.split()) == 1


class _Part:
    """The keys of some names, looked up among those of all."""

    def __init__(self, whole: Names, positions: Integers) -> None:
        self._whole = whole
        self._positions = positions

    def at(self, key: str) -> Sequence[int]:
        if not (everywhere := self._whole.spelt_as(key)):
            return ()
        return np.flatnonzero(np.isin(self._positions, everywhere)).tolist()


@dataclass(frozen=True)
class Names:
    """The tools' names in all spellings that a request may use."""

    spelt: tuple[str, ...]
    actions: NDArray[np.int32]
    """The action classes of each name, as a bit mask."""
    exact: Mapping[str, int]
    """The first tool of each name, by the key that all spellings of the name share."""
    destroying: NDArray[np.int64]
    """The positions of tools whose names say that they delete or overwrite."""
    others: Mapping[str, tuple[int, ...]]
    """The other tools of a shared name; separate, because few names are shared and need a collection."""
    servers: NDArray[np.int32]
    """The number of each tool's server."""
    server_names: tuple[str, ...]
    """The servers, by number."""
    of_whole: _Part | None = None
    """Set if these are some names of others, which then have the keys."""

    @classmethod
    def of(cls, names: Sequence[tuple[str, str]]) -> Names:
        """Make the names from pairs of server and tool name."""
        exact: dict[str, int] = {}
        others: defaultdict[str, set[int]] = defaultdict(set)
        for position, (server, name) in enumerate(names):
            for text in (name, f"{server} {name}"):
                for key in _exact_keys(text):
                    if key and exact.setdefault(key, position) != position:
                        others[key].add(position)
        spelt = tuple(split_words(name) for _, name in names)
        done = np.fromiter((name_actions(name.split()) for name in spelt), dtype=np.int32, count=len(spelt))
        destroying = np.fromiter((destroys(name.split()) for name in spelt), dtype=np.bool_, count=len(spelt))
        shared = {key: tuple(sorted(positions)) for key, positions in others.items()}
        numbers = {server: number for number, server in enumerate(dict.fromkeys(server for server, _ in names))}
        servers = np.fromiter((numbers[server] for server, _ in names), dtype=np.int32, count=len(spelt))
        return cls(spelt, done, exact, np.flatnonzero(destroying), shared, servers, tuple(numbers))

    def some(self, positions: Integers) -> Names:
        """The names of some tools, in ascending order, as if there were no others."""
        spelt = tuple(self.spelt[position] for position in positions)
        destroying = np.flatnonzero(np.isin(positions, self.destroying))
        among = _Part(self, positions)
        return Names(
            spelt, self.actions[positions], {}, destroying, {}, self.servers[positions], self.server_names, among
        )

    def exactly(self, query: str) -> list[int]:
        """The tools that the query names: the query is the name, however joined or inflected, or contains it as an
        identifier. A plain word does not count: "search" in a sentence does not mean the tool `search`."""
        keys = {*_exact_keys(query), *(name_key(word) for word in _IDENTIFIER.findall(query))}
        return sorted({position for key in keys for position in self.spelt_as(key)})

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools whose names have exactly these words, however they are joined: createIssue for create_issue."""
        return self.spelt_as(name_key(name))

    def spelt_as(self, key: str) -> Sequence[int]:
        """The tools with this key, in ascending order."""
        if self.of_whole is not None:
            return self.of_whole.at(key)
        first = self.exact.get(key)
        # No tool is stored under the empty key of a name without words.
        return () if first is None else (first, *self.others.get(key, ()))


def _exact_keys(text: str) -> tuple[str, str]:
    return name_key(text), "".join(terms(text))
