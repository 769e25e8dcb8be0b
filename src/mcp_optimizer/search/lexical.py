"""BM25 over the fields of tools, with numpy.

Everything that does not depend on the query is computed when the index is built, so that a query is a few
slices and additions: well under a millisecond at 10,000 tools. An index never changes; a new one is built
beside it. Called by the engine.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.document import Document
from mcp_optimizer.search.words import terms

FIELDS = ("name", "server", "description", "parameters", "all")
"""`all` is the four others together: it finds queries whose words are spread over several fields."""

_K1 = 1.2
_B = 0.75

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]


class Vocabulary:
    """Terms by number. Only grows, so that numbers given out stay valid across indexes."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        # Several servers are ingested at once, each in a thread.
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, term: str) -> int:
        number = self._numbers.get(term)
        if number is None:
            with self._adding:
                number = self._numbers.setdefault(term, len(self._numbers))
        return number

    def find(self, term: str) -> int | None:
        return self._numbers.get(term)


@dataclass(frozen=True)
class TermCounts:
    """How often each term stands in each field of one tool; `keys` are term number * fields + field."""

    keys: Integers
    counts: Integers
    lengths: Integers


def count_terms(document: Document, vocabulary: Vocabulary) -> TermCounts:
    fields = [terms(getattr(document, field)) for field in FIELDS[:-1]]
    fields.append([term for field in fields for term in field])
    by_field = [Counter(field) for field in fields]
    size = len(FIELDS)
    counted = [
        (vocabulary.add(term) * size + field, count)
        for field, counter in enumerate(by_field)
        for term, count in counter.items()
    ]
    pairs = np.array(counted, dtype=np.int32).reshape(-1, 2)
    lengths = np.array([len(field) for field in fields], dtype=np.int32)
    return TermCounts(keys=pairs[:, 0].copy(), counts=pairs[:, 1].copy(), lengths=lengths)


class LexicalIndex:
    """An immutable BM25 index: which tools have a term in a field, and how much that says."""

    def __init__(self, documents: Sequence[TermCounts], vocabulary: Vocabulary) -> None:
        self.size = len(documents)
        self._vocabulary = vocabulary
        self._starts = np.zeros(1, dtype=np.int64)
        self._documents: Integers = np.zeros(0, dtype=np.int32)
        self._impacts: Floats = np.zeros(0, dtype=np.float32)
        if documents:
            self._build(documents, len(vocabulary) * len(FIELDS))

    def _build(self, documents: Sequence[TermCounts], key_count: int) -> None:
        keys = np.concatenate([counts.keys for counts in documents])
        counts = np.concatenate([counts.counts for counts in documents]).astype(np.float32)
        owners = np.repeat(np.arange(self.size, dtype=np.int32), [len(counts.keys) for counts in documents])
        order = np.argsort(keys, kind="stable")
        keys, counts, owners = keys[order], counts[order], owners[order]
        frequencies = np.bincount(keys, minlength=key_count)
        self._starts = np.concatenate([[0], np.cumsum(frequencies)])
        self._documents = owners
        # Lengths relative to the field's average: a long field says less per word.
        lengths = np.stack([counts.lengths for counts in documents]).astype(np.float32)
        relative = lengths / np.maximum(lengths.mean(axis=0), 1e-6)
        length = relative[owners, keys % len(FIELDS)]
        rarity = np.log1p((self.size - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
        self._impacts = rarity[keys] * counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * length))

    def scores(self, query: Mapping[str, float]) -> Floats:
        """BM25 of every tool in every field (tools x fields) for weighted query terms."""
        found = np.zeros((len(FIELDS), self.size), dtype=np.float32)
        last = len(self._starts) - 1
        for term, weight in query.items():
            number = self._vocabulary.find(term)
            if number is None:
                continue
            for field in range(len(FIELDS)):
                key = number * len(FIELDS) + field
                if key >= last:
                    # Added to the vocabulary after this index was built.
                    continue
                begin, end = self._starts[key], self._starts[key + 1]
                # A tool stands once in a posting list, so plain indexed addition is safe.
                found[field, self._documents[begin:end]] += weight * self._impacts[begin:end]
        return found.T
