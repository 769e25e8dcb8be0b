"""Turns text into terms: splits identifiers, stems words, drops stop words. All lexical matching uses these terms.

Pure. Tools and queries must go through the same functions; otherwise they would not match.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import Stemmer

from mcp_optimizer.runtime.patterns import regex

# Latin letters, including accented ones: "cartão" is one word.
_LATIN = [letter for letter in map(chr, (*range(0x41, 0x250), *range(0x1E00, 0x1F00))) if letter.isalpha()]
_UPPER = "".join(letter for letter in _LATIN if letter.isupper())
_LOWER = "".join(letter for letter in _LATIN if not letter.isupper())

# HTTPServer -> HTTP Server; createIssue2 -> create Issue 2; runs of letters in other scripts stay whole.
_PIECE = regex(rf"[{_UPPER}]+(?=[{_UPPER}][{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|[{_UPPER}]+|\d+|[^\W\d_{_UPPER}{_LOWER}]+")
_IDEOGRAPHS = regex(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")

_SHORT = 500
"""Characters of a text up to which its pieces are remembered."""

STOP_WORDS = frozenset(
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its "
    "just like may me might must my need of on or our out please shall should so some such than that the their them "
    "then there these they this to up us use used using via want was we were what when where which while who whom "
    "why will with would you your".split()
)


class _Stemmers(threading.local):
    """One stemmer per thread: a stemmer stores the word it works on, and servers are ingested in several threads."""

    def __init__(self) -> None:
        self.english = Stemmer.Stemmer("english", maxCacheSize=0)


_stemmers = _Stemmers()


@lru_cache(maxsize=10_000)
def _terms_of(piece: str) -> tuple[str, ...]:
    """The terms of one piece of text: none for a stop word, pairs for ideographs, otherwise its stem."""
    return tuple(_stemmers.english.stemWord(word) for word in _split(piece) if word not in STOP_WORDS)


def _pieces(text: str) -> Sequence[str]:
    return _pieces_of_short(text) if len(text) <= _SHORT else _PIECE.findall(_composed(text))


@lru_cache(maxsize=64)
def _pieces_of_short(text: str) -> tuple[str, ...]:
    """Remembered for some texts: a search asks several times for its request."""
    return tuple(_PIECE.findall(_composed(text)))


def _composed(text: str) -> str:
    # An accent may also arrive as a separate character.
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _split(piece: str) -> list[str]:
    if piece.isascii() or len(piece) <= 2 or not _IDEOGRAPHS.search(piece):
        return [piece.lower()]
    # Ideographs are written without spaces, so pairs of characters serve as words.
    return [piece[i : i + 2] for i in range(len(piece) - 1)]


def words(text: str) -> list[str]:
    """The words of a text or an identifier, in lower case, unstemmed, including stop words."""
    return [word for piece in _pieces(text) for word in _split(piece)]


def are_all_in(text: str, known: frozenset[str]) -> bool:
    """Whether every word of a text is known. Stops at the first unknown word, usually near the start."""
    return all(known.issuperset(_split(piece.group())) for piece in _PIECE.finditer(_composed(text)))


def terms(text: str) -> list[str]:
    """The stemmed words without stop words, in order."""
    found: list[str] = []
    for piece in _pieces(text):
        found += _terms_of(piece)
    return found


def name_key(name: str) -> str:
    """The key that all spellings of a name share: createIssue, create_issue and "create issue" have the same."""
    return "".join(words(name))
