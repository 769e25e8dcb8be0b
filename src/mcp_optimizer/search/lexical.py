"""Ranks by BM25 over the fields of tools, with numpy. Called by the ranker.

Everything that does not depend on the query is computed when the index is built, so a query takes a few slices and
additions: about a millisecond for 10,000 tools. An index never changes; a new one replaces it.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.tool_texts import Document
from mcp_optimizer.search.words import terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int32]
    Vector = Floats | bytes
    """Bytes are numbers in single precision, little-endian, as stored in the database."""
else:
    Floats = Vector = Any

FIELDS = ("name", "server", "description", "parameters", "all")
"""`all` joins the other four, to match queries whose words are spread over several fields."""

_ALL = FIELDS.index("all")
_NAME_REPEATS = 2
"""How many times the name counts in `all`, because it says more about a tool than its other words."""

_MOST_ABOUT = 60
"""Maximum terms about its server by which a tool is found; more would drown the tool's own."""

_MOST = 65_535

_TOGETHER = 2_000
"""Tools whose terms are joined in one step."""

_AT_ONCE = 500_000
"""Terms that are added up in one step; the interpreter is released between steps."""

_K1 = 1.2
_B = 0.75


class Vocabulary:
    """Numbers the terms. Only grows, so its numbers stay valid across indexes; a new one replaces it when most of its
    terms are no longer in use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []
        self._used_at_last = 0
        # Several servers are ingested at once, each in its own thread.
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, term: str) -> int:
        number = self._numbers.get(term)
        if number is None:
            with self._adding:
                number = self._numbers.get(term)
                if number is None:
                    number = len(self._terms)
                    self._terms.append(term)
                    self._numbers[term] = number
        return number

    def find(self, term: str) -> int | None:
        return self._numbers.get(term)

    def term(self, number: int) -> str:
        return self._terms[number]

    def is_due(self, spare: int) -> bool:
        """Whether the vocabulary has grown so much since its used terms were last counted that counting may pay off."""
        return len(self) > 2 * self._used_at_last + spare

    def looked_through(self, used: int) -> None:
        """Record how many terms are in use."""
        self._used_at_last = max(used, len(self) // 2)


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How often each term occurs in each field of one tool; `keys` are term number * fields + field."""

    keys: array[int]
    counts: array[int]
    lengths: array[int]
    vocabulary: Vocabulary | None = None
    """The vocabulary that the term numbers belong to; None if there are no terms."""


def count_terms(document: Document, vocabulary: Vocabulary) -> TermCounts:
    fields = [terms(getattr(document, field)) for field in FIELDS[:-1]]
    about = terms(document.about)[:_MOST_ABOUT]
    fields.append([term for field in (*fields[:1] * _NAME_REPEATS, *fields[1:], about) for term in field])
    by_field = [Counter(field) for field in fields]
    size = len(FIELDS)
    keys = array("i", [vocabulary.add(term) * size + at for at, counter in enumerate(by_field) for term in counter])
    counts = array("H", [min(count, _MOST) for counter in by_field for count in counter.values()])
    return TermCounts(keys, counts, array("i", map(len, fields)), vocabulary)


def in_use(documents: Iterable[TermCounts], vocabulary: Vocabulary) -> int:
    """How many terms of a vocabulary occur in these documents."""
    marked = np.zeros(len(vocabulary), dtype=np.bool_)
    for counts in documents:
        if counts.vocabulary is vocabulary:
            marked[np.asarray(counts.keys) // len(FIELDS)] = True
    return int(np.count_nonzero(marked))


def translated(counts: TermCounts, vocabulary: Vocabulary) -> TermCounts:
    """The same counts with the term numbers of another vocabulary."""
    own = counts.vocabulary
    if own is None or own is vocabulary:
        return counts
    size = len(FIELDS)
    numbers = {number: vocabulary.add(own.term(number)) for number in sorted({key // size for key in counts.keys})}
    keys = array("i", [numbers[key // size] * size + key % size for key in counts.keys])
    return TermCounts(keys, counts.counts, counts.lengths, vocabulary)


class LexicalIndex:
    """An immutable BM25 index: the tools that have a term in a field, and how much that counts."""

    def __init__(self, documents: Sequence[TermCounts], vocabulary: Vocabulary) -> None:
        self.size = len(documents)
        self._vocabulary = vocabulary
        self._starts = np.zeros(1, dtype=np.int64)
        self._documents: Integers = np.zeros(0, dtype=np.int32)
        self._impacts: Floats = np.zeros(0, dtype=np.float32)
        self._shares: Floats = np.zeros(0, dtype=np.float32)
        if documents:
            self._build(documents, len(vocabulary) * len(FIELDS))

    def _build(self, documents: Sequence[TermCounts], key_count: int) -> None:
        keys, counts, owners, lengths = _columns(documents)
        order = np.argsort(keys, kind="stable")
        keys, counts, owners = keys[order], counts[order], owners[order]
        self._starts = np.searchsorted(keys, np.arange(key_count + 1, dtype=np.int32))
        self._documents = owners
        # Lengths relative to the field's average: a word counts less in a long field.
        relative = lengths / np.maximum(lengths.mean(axis=0), 1e-6)
        fields = keys % len(FIELDS)
        rarity = _rarity(self.size, np.diff(self._starts)).astype(np.float32)[keys]
        self._impacts = rarity * counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * relative[owners, fields]))
        # Each term's share of its field's total rarity: the shares of a query's terms add up to the part of the field
        # that the query contains.
        whole = np.zeros(self.size * len(FIELDS), dtype=np.float32)
        places = owners * len(FIELDS) + fields
        for at in range(0, len(places), _AT_ONCE):
            np.add.at(whole, places[at : at + _AT_ONCE], rarity[at : at + _AT_ONCE])
        self._shares = rarity / whole[places]

    def knows(self, term: str) -> bool:
        """Whether any tool has this term."""
        number = self._vocabulary.find(term)
        if number is None:
            return False
        begin, end = self._run(number, _ALL)
        return end > begin

    def known_terms(self) -> list[str]:
        """Every term that at least one tool has."""
        runs = np.diff(self._starts)[_ALL :: len(FIELDS)]
        return [self._vocabulary.term(int(number)) for number in np.flatnonzero(runs)]

    def scores(self, query: Iterable[str], zeros: Floats | None = None) -> Floats:
        """BM25 of every tool in every field (fields x tools), in `zeros` if given; each term counts once."""
        found = np.zeros((len(FIELDS), self.size), dtype=np.float32) if zeros is None else zeros
        for number in self._numbers(query):
            for field in range(len(FIELDS)):
                begin, end = self._run(number, field)
                if end > begin:
                    # A tool occurs once in a posting list, so plain indexed addition is safe.
                    found[field, self._documents[begin:end]] += self._impacts[begin:end]
        return found

    def field_scores(self, query: Iterable[str], field: str) -> Floats:
        """BM25 of every tool in one field."""
        return self._sum(query, field, self._impacts)

    def named(self, query: Iterable[str], field: str) -> Floats:
        """The part of each tool's field that the query contains, from 0 to 1."""
        return self._sum(query, field, self._shares)

    def met(self, query: Iterable[str]) -> Floats:
        """The part of the query that each tool covers, from 0 to 1; a word that no tool has counts as the rarest."""
        result, whole = np.zeros(self.size, dtype=np.float32), 0.0
        for term in dict.fromkeys(query):
            number = self._vocabulary.find(term)
            begin, end = (0, 0) if number is None else self._run(number, _ALL)
            weight = float(_rarity(self.size, end - begin))
            whole += weight
            result[self._documents[begin:end]] += np.float32(weight)
        if whole > 0.0:
            result /= np.float32(whole)
        return result

    def _sum(self, query: Iterable[str], field: str, values: Floats) -> Floats:
        result = np.zeros(self.size, dtype=np.float32)
        for number in self._numbers(query):
            begin, end = self._run(number, FIELDS.index(field))
            result[self._documents[begin:end]] += values[begin:end]
        return result

    def _numbers(self, query: Iterable[str]) -> Iterator[int]:
        for term in dict.fromkeys(query):
            number = self._vocabulary.find(term)
            if number is not None:
                yield number

    def _run(self, number: int, field: int) -> tuple[int, int]:
        """The start and end of the posting list of a term in a field."""
        key = number * len(FIELDS) + field
        if key >= len(self._starts) - 1:
            # The term was added to the vocabulary after this index was built.
            return 0, 0
        return int(self._starts[key]), int(self._starts[key + 1])


def _columns(documents: Sequence[TermCounts]) -> tuple[Integers, Floats, Integers, Floats]:
    """The terms of all tools as columns: their keys, counts and tools; and each tool's field lengths, as a row.

    Joined a few tools at a time, because joining and repeating hold the interpreter: 200,000 tools at once would stop
    the event loop for a tenth of a second.
    """
    steps = []
    for at in range(0, len(documents), _TOGETHER):
        some = documents[at : at + _TOGETHER]
        keys = np.frombuffer(b"".join([counts.keys for counts in some]), dtype=np.int32)
        counts = np.frombuffer(b"".join([counts.counts for counts in some]), dtype=np.uint16)
        owners = np.arange(at, at + len(some), dtype=np.int32).repeat([len(counts.keys) for counts in some])
        lengths = np.frombuffer(b"".join([counts.lengths for counts in some]), dtype=np.int32)
        steps.append((keys, counts, owners, lengths))
    keys, counts, owners, lengths = map(np.concatenate, zip(*steps, strict=True))
    return keys, counts.astype(np.float32), owners, lengths.reshape(-1, len(FIELDS)).astype(np.float32)


def _rarity(size: int, frequency: NDArray[np.int64] | int) -> NDArray[np.float64]:
    return np.log1p((size - np.asarray(frequency) + 0.5) / (np.asarray(frequency) + 0.5))
