"""Ranks by BM25 over the fields of tools, with numpy. Called by the ranker.

Everything that does not depend on the query is computed when the index is built, so a query takes a few slices and
additions: about a millisecond for 10,000 tools. An index never changes; a new one replaces it. Some of its tools can be
ranked as if there were no others, without an index of their own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.tool_texts import Document
from mcp_optimizer.search.words import terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.integer[Any]]
    Counts = NDArray[np.uint16]
    Vector = Floats | bytes
    """Bytes are numbers in single precision, little-endian, as stored in the database."""
else:
    Floats = Integers = Vector = Any

FIELDS = ("name", "server", "description", "parameters", "all")
"""`all` joins the other four, to match queries whose words are spread over several fields."""

_SHARED = FIELDS[:2]
"""The fields of which it matters what part of them a query contains."""

_ALL = FIELDS.index("all")
_NAME_REPEATS = 2
"""How many times the name counts in `all`, because it says more about a tool than its other words."""

_MOST_ABOUT = 60
"""Maximum terms about its server by which a tool is found; more would drown the tool's own."""

_MOST = 65_535

_TOGETHER = 2_000
"""Tools whose terms are joined in one step."""

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


class WordIndex(ABC):
    """Ranks tools by words. What it needs of its tools: those that have a term in a field, and how much that counts."""

    size: int
    """Positions of tools; every result has a value for each."""
    _count: int
    """Tools that count."""
    _vocabulary: Vocabulary

    @abstractmethod
    def _having(self, number: int, field: int) -> Integers:
        """The tools that have a term in a field."""

    @abstractmethod
    def _impacts_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        """The same, and how much the term counts for each."""

    @abstractmethod
    def _shares_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        """The same, and the term's share of the total rarity of what each has in that field, one of `_SHARED`."""

    @abstractmethod
    def known_terms(self) -> list[str]:
        """Every term that at least one tool has."""

    def knows(self, term: str) -> bool:
        """Whether any tool has this term."""
        number = self._vocabulary.find(term)
        return number is not None and len(self._having(number, _ALL)) > 0

    def scores(self, query: Iterable[str], zeros: Floats | None = None) -> Floats:
        """BM25 of every tool in every field (fields x tools), in `zeros` if given; each term counts once."""
        found = np.zeros((len(FIELDS), self.size), dtype=np.float32) if zeros is None else zeros
        rows = list(found)
        for number in self._numbers(query):
            for field, row in enumerate(rows):
                tools, impacts = self._impacts_of(number, field)
                if len(tools):
                    # A tool occurs once in a posting list, so plain indexed addition is safe.
                    row[tools] += impacts
        return found

    def field_scores(self, query: Iterable[str], field: str) -> Floats:
        """BM25 of every tool in one field."""
        result = np.zeros(self.size, dtype=np.float32)
        for number in self._numbers(query):
            tools, impacts = self._impacts_of(number, FIELDS.index(field))
            result[tools] += impacts
        return result

    def named(self, query: Iterable[str], field: str) -> Floats:
        """The part of each tool's name, or of its server's, that the query contains, from 0 to 1."""
        result = np.zeros(self.size, dtype=np.float32)
        for number in self._numbers(query):
            tools, shares = self._shares_of(number, _SHARED.index(field))
            if len(tools):
                result[tools] += shares
        return result

    def met(self, query: Iterable[str]) -> Floats:
        """The part of the query that each tool covers, from 0 to 1; a word that no tool has counts as the rarest."""
        result, whole = np.zeros(self.size, dtype=np.float32), 0.0
        for term in dict.fromkeys(query):
            number = self._vocabulary.find(term)
            tools = _nowhere() if number is None else self._having(number, _ALL)
            weight = _rarity_of_one(self._count, len(tools))
            whole += weight
            result[tools] += np.float32(weight)
        if whole > 0.0:
            result /= np.float32(whole)
        return result

    def _numbers(self, query: Iterable[str]) -> Iterator[int]:
        for term in dict.fromkeys(query):
            number = self._vocabulary.find(term)
            if number is not None:
                yield number


class LexicalIndex(WordIndex):
    """An immutable BM25 index of all tools of a catalog."""

    def __init__(self, documents: Sequence[TermCounts], vocabulary: Vocabulary) -> None:
        self.size = self._count = len(documents)
        self._vocabulary = vocabulary
        self._of = documents
        self._starts = np.zeros(1, dtype=np.int64)
        self._documents: Integers = np.zeros(0, dtype=np.int32)
        self._counts: Counts = np.zeros(0, dtype=np.uint16)
        self._impacts: Floats = np.zeros(0, dtype=np.float32)
        self._totals: Floats = np.zeros((0, len(_SHARED)), dtype=np.float32)
        self.lengths: Floats = np.zeros((0, len(FIELDS)), dtype=np.float32)
        """Of all fields of all tools (tools x fields)."""
        self._shared_keys: Integers = np.zeros(0, dtype=np.int32)
        """The keys in the fields of `_SHARED`, tool by tool; `_shared_starts` says where those of each begin."""
        self._shared_starts = np.zeros(1, dtype=np.int64)
        if documents:
            self._build(documents, len(vocabulary) * len(FIELDS))

    def _build(self, documents: Sequence[TermCounts], key_count: int) -> None:
        keys, counts, owners, self.lengths = _columns(documents)
        is_shared = keys % len(FIELDS) < len(_SHARED)
        self._shared_keys, sharing = keys[is_shared], owners[is_shared]
        self._shared_starts = np.searchsorted(sharing, np.arange(self.size + 1))
        order = np.argsort(keys, kind="stable")
        keys, counts, owners = keys[order], counts[order], owners[order]
        self._starts = np.searchsorted(keys, np.arange(key_count + 1, dtype=np.int32))
        self._documents, self._counts = owners, counts
        rarity = _rarity(self.size, np.diff(self._starts)).astype(np.float32)
        relative = self.lengths / _average(self.lengths)
        self._impacts = _impacts(rarity[keys], counts, relative[owners, keys % len(FIELDS)])
        self._totals = _totals(self.size, self._shared_keys, sharing, rarity[self._shared_keys])

    def some(self, positions: Integers, *, in_place: bool = False) -> LexicalPart:
        """The index that these tools, in ascending order, would have alone; `in_place`: at their positions in this one,
        where the others then have no words.
        """
        return LexicalPart(self, positions, in_place=in_place)

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    def known_terms(self) -> list[str]:
        runs = np.diff(self._starts)[_ALL :: len(FIELDS)]
        return [self._vocabulary.term(int(number)) for number in np.flatnonzero(runs)]

    def known_terms_of(self, positions: Integers) -> list[str]:
        """Every term that at least one of these tools has. Sorted: by their numbers, they would show in which order the
        tools came that had each first.
        """
        keys = _columns([self._of[position] for position in positions])[0] if len(positions) else _nowhere()
        numbers = np.unique(keys[keys % len(FIELDS) == _ALL]) // len(FIELDS)
        return sorted(self._vocabulary.term(int(number)) for number in numbers)

    def postings(self, number: int, field: int) -> tuple[Integers, Counts]:
        """The tools that have a term in a field, in ascending order, and how often."""
        begin, end = self._run(number, field)
        return self._documents[begin:end], self._counts[begin:end]

    def totals_of(self, positions: Integers) -> Floats:
        """The total rarity of the terms of these tools in each field of `_SHARED`, if there were no others."""
        begins = self._shared_starts[positions]
        counts = self._shared_starts[positions + 1] - begins
        owners = np.repeat(np.arange(len(positions)), counts)
        # The places begin .. begin + count of each tool, one tool after the other.
        places = np.arange(len(owners)) + np.repeat(begins - np.cumsum(counts) + counts, counts)
        keys = self._shared_keys[places]
        # A tool has a term once in a field.
        _, which, frequency = np.unique(keys, return_inverse=True, return_counts=True)
        return _totals(len(positions), keys, owners, _rarity(len(positions), frequency).astype(np.float32)[which])

    def _having(self, number: int, field: int) -> Integers:
        begin, end = self._run(number, field)
        return self._documents[begin:end]

    def _impacts_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        begin, end = self._run(number, field)
        return self._documents[begin:end], self._impacts[begin:end]

    def _shares_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        tools = self._having(number, field)
        if not len(tools):
            # Most words of a request are in no name.
            return tools, self._impacts[:0]
        return tools, np.float32(_rarity_of_one(self.size, len(tools))) / self._totals[tools, field]

    def _run(self, number: int, field: int) -> tuple[int, int]:
        """The start and end of the posting list of a term in a field."""
        key = number * len(FIELDS) + field
        if key >= len(self._starts) - 1:
            # The term was added to the vocabulary after this index was built.
            return 0, 0
        return int(self._starts[key]), int(self._starts[key + 1])


class LexicalPart(WordIndex):
    """Some tools of an index, weighted as if there were no others: no value depends on a tool that is not among them.

    It has no posting lists of its own but looks its tools up in those of the whole index, and weights what it finds
    when it is asked. For each tool it holds a few numbers, where an index of its own would hold all words.
    """

    def __init__(self, whole: LexicalIndex, positions: Integers, *, in_place: bool) -> None:
        self.size = whole.size if in_place else len(positions)
        self._count = len(positions)
        self._vocabulary = whole.vocabulary
        self._whole = whole
        self._positions: Integers = positions.astype(np.int32, copy=False)
        self._in_place = in_place
        self._totals: Floats = np.zeros((0, len(_SHARED)), dtype=np.float32)
        self._average: Floats = np.zeros(len(FIELDS), dtype=np.float32)
        if self._count:
            self._totals = whole.totals_of(positions)
            self._average = _average(whole.lengths[positions])

    def known_terms(self) -> list[str]:
        return self._whole.known_terms_of(self._positions)

    def _having(self, number: int, field: int) -> Integers:
        return self._placed(self._found(number, field)[0])

    def _impacts_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        found, counts = self._found(number, field)
        relative = self._whole.lengths[self._positions[found], field] / self._average[field]
        return self._placed(found), _impacts(np.float32(_rarity_of_one(self._count, len(found))), counts, relative)

    def _shares_of(self, number: int, field: int) -> tuple[Integers, Floats]:
        found, _ = self._found(number, field)
        return self._placed(found), np.float32(_rarity_of_one(self._count, len(found))) / self._totals[found, field]

    def _placed(self, found: Integers) -> Integers:
        return self._positions[found] if self._in_place else found

    def _found(self, number: int, field: int) -> tuple[Integers, Counts]:
        """Those of these tools that have a term in a field, by their places among these, and how often."""
        everywhere, counts = self._whole.postings(number, field)
        if not len(everywhere) or not self._count:
            return _nowhere(), counts[:0]
        # Each of the fewer is looked up among the more.
        if len(everywhere) < self._count:
            at = np.minimum(np.searchsorted(self._positions, everywhere), self._count - 1)
            is_here = self._positions[at] == everywhere
            return at[is_here], counts[is_here]
        at = np.minimum(np.searchsorted(everywhere, self._positions), len(everywhere) - 1)
        here = np.flatnonzero(everywhere[at] == self._positions)
        return here, counts[at[here]]


@cache
def _nowhere() -> Integers:
    return np.zeros(0, dtype=np.int64)


def _columns(documents: Sequence[TermCounts]) -> tuple[Integers, Counts, Integers, Floats]:
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
    return keys, counts, owners, lengths.reshape(-1, len(FIELDS)).astype(np.float32)


def _average(lengths: Floats) -> Floats:
    """Of each field. A word counts less in a field that is long for its kind."""
    found: Floats = np.maximum(lengths.mean(axis=0), np.float32(1e-6))
    return found


def _impacts(rarity: Floats | np.float32, counts: Counts, relative: Floats) -> Floats:
    """How much a term counts for tools that have it this often in a field of this length."""
    often = counts.astype(np.float32)
    return np.asarray(rarity * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * relative)), dtype=np.float32)


def _totals(size: int, keys: Integers, owners: Integers, rarity: Floats) -> Floats:
    """The total rarity of each tool's terms in each field of `_SHARED` (tools x fields), of the keys in these fields.
    Added up in double precision, so that the order of the terms does not show.
    """
    places = owners.astype(np.int64) * len(_SHARED) + keys % len(FIELDS)
    found = np.bincount(places, weights=rarity, minlength=size * len(_SHARED))
    return found.reshape(size, len(_SHARED)).astype(np.float32)


def _rarity(size: int, frequency: NDArray[np.int64]) -> NDArray[np.float64]:
    rarity: NDArray[np.float64] = np.log1p((size - frequency + 0.5) / (frequency + 0.5))
    return rarity


@lru_cache(maxsize=10_000)
def _rarity_of_one(size: int, frequency: int) -> float:
    """Of a term that so many tools have. Remembered: a search asks several times for each of its terms."""
    return float(_rarity(size, np.array(frequency)))
