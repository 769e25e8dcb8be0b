"""Short descriptions: how they are stated, and which of those that an endpoint wrote are used. Pure.

`five_words` makes them from the tools themselves; `documentation` puts them into a definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.search.words import terms

MOST_WORDS = 5

LONGEST_SHORT = 80
"""Characters of a short description."""


class Level(StrEnum):
    """How long a description is: as `compress` leaves it, or at most five words."""

    FULL = "full"
    WORDS = "words"


@dataclass(frozen=True)
class ShortDescription:
    """A tool's description in at most five words; `is_clear` is False if another tool has the same."""

    text: str
    is_clear: bool


def better_written(chosen: Sequence[ShortDescription], written: Sequence[str | None]) -> list[ShortDescription]:
    """Descriptions written by an endpoint, where they are short enough and distinguish the tool from all others."""
    taken = Counter(frozenset(terms(short.text)) for short in chosen)
    found = list(chosen)
    for position, text in enumerate(written):
        if text is None or not _is_short(text):
            continue
        own, new = frozenset(terms(found[position].text)), frozenset(terms(text))
        if taken[new] - (own == new):
            continue
        taken.subtract([own])
        taken.update([new])
        found[position] = ShortDescription(text, is_clear=True)
    return found


def _is_short(text: str) -> bool:
    """At most five meaningful words in one printable line."""
    return (
        0 < len(text.split()) <= MOST_WORDS and bool(terms(text)) and text.isprintable() and len(text) <= LONGEST_SHORT
    )
