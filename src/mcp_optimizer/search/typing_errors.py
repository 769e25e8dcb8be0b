"""Corrects mistyped words in a request before the search. Called by the engine.

A word is mistyped if neither the encoder's vocabulary, which has the common English words, nor any tool contains it,
and a known word is one typing error away (two for long words). Names, numbers and identifiers stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import CLASSES
from mcp_optimizer.search.words import terms

_WORD = regex(r"(?<![\w@/.:\\-])[a-z]{3,30}(?![\w@/\\]|[.:-]\w)")
_QUOTED = regex(r"[\"'`“‘«].*?[\"'`”’»]|https?://\S+")
_PLAIN_LINE = regex(r"^[A-Za-z]{3,}$", re.MULTILINE)
_MOST_REPAIRED: Final = 12
"""A request with more unknown words is assumed to be in another language and stays unchanged."""

_MOST_UNKNOWN: Final = 0.6
_LONG_WORD: Final = 8
_CANDIDATES: Final = 24


Grouped = Mapping[tuple[str, int], Sequence[str]]
"""Words by first letter and length, because the first letter is rarely mistyped."""


def _is_plain(word: str) -> bool:
    return len(word) > 2 and word.isascii() and word.isalpha()


def grouped(words: Iterable[str]) -> Grouped:
    """The plain words of three letters or more, grouped for lookup."""
    found: dict[tuple[str, int], list[str]] = {}
    for word in words:
        if _is_plain(word):
            found.setdefault((word[0], len(word)), []).append(word)
    return found


@cache
def _all_usual() -> Mapping[str, None]:
    """The words for actions and the whole words of the bundled vocabulary, more common ones first."""
    stored = resources.files("mcp_optimizer") / "search" / "model" / "vocab.txt"
    # The first search waits for this, so one pass over the file instead of thirty thousand checks of single words.
    return dict.fromkeys([*filter(_is_plain, CLASSES), *_PLAIN_LINE.findall(stored.read_text(encoding="utf-8"))])


def is_usual(word: str) -> bool:
    """Whether a word is among the words for actions and the common English words."""
    return word in _all_usual()


@cache
def _usual() -> Grouped:
    """The words of `_all_usual`, grouped; computed only when a word is mistyped."""
    return grouped(_all_usual())


def repaired(query: str, is_known: Callable[[str], bool], own: Callable[[], Grouped]) -> str:
    """The request, corrected. `is_known` says whether any tool has a term; `own` returns all terms of the tools."""
    if not query.isascii():
        return query
    quoted = [found.span() for found in _QUOTED.finditer(query)]
    spots = [found for found in _WORD.finditer(query) if not any(begin <= found.start() < end for begin, end in quoted)]
    unknown = [spot for spot in spots if not _is_word(spot.group(), is_known)]
    if not unknown or len(unknown) > max(2, _MOST_UNKNOWN * len(spots)) or len(unknown) > _MOST_REPAIRED:
        return query
    for spot in reversed(unknown):
        if (mended := _nearest(spot.group(), is_known, own())) is not None:
            query = f"{query[: spot.start()]}{mended}{query[spot.end() :]}"
    return query


def _is_word(word: str, is_known: Callable[[str], bool]) -> bool:
    if word in _all_usual() or any(
        word.removesuffix(ending) in _all_usual() for ending in ("s", "es", "ed", "ing", "d")
    ):
        return True
    return all(is_known(term) for term in terms(word))


def _nearest(word: str, is_known: Callable[[str], bool], own: Grouped) -> str | None:
    """The known word with the fewest typing errors; among several, one that tools have, then the most common one."""
    # Imported on demand: it takes 3 MB, and most requests are not mistyped.
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    slips = 2 if len(word) >= _LONG_WORD else 1
    keys = [(word[0], length) for length in range(len(word) - slips, len(word) + slips + 1)]
    choices = [near for known in (_usual(), own) for key in keys for near in known.get(key, ())]
    found = process.extract(word, choices, scorer=OSA.distance, score_cutoff=slips, limit=_CANDIDATES)
    likely = [
        (slip, not all(map(is_known, terms(near))), at, near)
        for near, slip, at in found
        # Three letters are too few for a guess, unless two of them are swapped.
        if len(word) > 3 or sorted(near) == sorted(word)
    ]
    return min(likely)[3] if likely else None
