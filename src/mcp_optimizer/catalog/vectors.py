"""The vectors of tools that an encoder made, kept as long as a server lists the tool.

Most of them are in the matrix of the index; those made since are held separately. Called by the catalog in the event
loop; the value that `at_hand` returns may be read in a thread.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

from mcp_optimizer.catalog.record import ToolRecord
from mcp_optimizer.search.lexical import Vector


class KnownVectors:
    """Vectors by their keys."""

    def __init__(self) -> None:
        self._indexed: dict[str, Vector] = {}
        self._new: dict[str, Vector] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._new or key in self._indexed

    def __len__(self) -> int:
        return len(self._new.keys() | self._indexed.keys())

    def add(self, found: Mapping[str, Vector]) -> None:
        self._new.update(found)

    def at_hand(self) -> Mapping[str, Vector]:
        """Everything known now; later additions do not change it."""
        return ChainMap(dict(self._new), self._indexed)

    def settle(self, indexed: dict[str, Vector], at_hand: Mapping[str, Vector], since: Iterable[ToolRecord]) -> None:
        """An index was built from `at_hand`; `since` are records that it does not contain yet.

        Vectors of tools that no server lists any more are dropped: each would keep the complete matrix of an old index
        alive.
        """
        # Without an encoder there are none, and with very many tools the event loop should not look for them.
        listed = {record.vector_key for record in since} - indexed.keys() if self._new or self._indexed else ()
        kept = {key: found for key in listed if (found := self._find(key)) is not None}
        kept |= {key: found for key, found in self._new.items() if key not in at_hand and key not in indexed}
        self._indexed, self._new = indexed, kept

    def _find(self, key: str) -> Vector | None:
        found = self._new.get(key)
        return self._indexed.get(key) if found is None else found


def vectors_in(vectors: Sequence[Vector | None], records: Sequence[ToolRecord]) -> dict[str, Vector]:
    """Vectors as rows of an index, by key; stored this way they take no extra memory."""
    return {record.vector_key: vector for record, vector in zip(records, vectors, strict=True) if vector is not None}
