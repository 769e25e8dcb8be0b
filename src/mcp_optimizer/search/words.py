"""Text to words: identifiers split, stemmed, stop words left out. The one way this package reads text.

Pure; tools and queries go through the same functions, or they would never meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import snowballstemmer

# HTTPServer -> HTTP Server; createIssue2 -> create Issue 2; other scripts keep their runs of letters.
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")

_STOP_WORDS = frozenset(
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its "
    "just like may me might must my need of on or our out please shall should so some such than that the their them "
    "then there these they this to up us use used using via want was we were what when where which while who whom "
    "why will with would you your".split()
)

_stemmer = snowballstemmer.stemmer("english")


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


def words(text: str) -> Iterator[str]:
    """The words of a text or an identifier, lower case, unstemmed, stop words included."""
    for match in _PIECE.finditer(text):
        piece = match.group()
        if _IDEOGRAPHS.search(piece) and len(piece) > 2:
            # Written without spaces: pairs of characters stand in for words.
            yield from (piece[i : i + 2] for i in range(len(piece) - 1))
        else:
            yield piece.lower()


def terms(text: str) -> list[str]:
    """The stemmed words that carry meaning, in order."""
    return [_stem(word) for word in words(text) if word not in _STOP_WORDS]


def name_key(name: str) -> str:
    """What two spellings of one name share: createIssue, create_issue and "create issue" are one."""
    return "".join(words(name))
