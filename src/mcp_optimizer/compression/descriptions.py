"""Descriptions at three lengths: full, one sentence, at most five words. Pure.

The five words are the tool's own, from its first sentence and, if needed, from the rest of its text: those that
distinguish it from other tools in the catalog, in their original order. If no five words do, this is reported and the
sentence is used.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import first_sentence, opening
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.words import terms

MOST_WORDS = 5

_WORD = re.compile(r"[^\W_][\w'’.+#/-]*[^\W_]|[^\W_]")
_LINK = re.compile(r"\]\([^)\s]*\)|https?://\S+")

_EARLY = 8.0
"""Weight of words in the first sentence relative to later ones."""

_NAMED = 0.5
"""Weight of a word that the tool's name already contains."""

_LITTLE = 0.05
"""Weight of a word that is rare in descriptions but says little: a number, or one of these."""

_SAYING_LITTLE = frozenset(
    "about above across after again against all along already also although always among another around back because "
    "before behind below besides between beyond both certain currently different during each either else enough "
    "especially etc even every except existing few following further given here however important including instead "
    "later least less likely many more most much multiple namely near neither never next no none not nothing now "
    "number often once one only onto other others otherwise over own particular per possible provided purpose rather "
    "regarding respective same see several since single something specific specified still sure tell than though "
    "through throughout together too toward two under unless until upon useful usually various very via well whatever "
    "whenever whether whose within without yet".split()
)

_LONGEST_SOURCE = 1_500
_LONGEST_WORD = 30
_LONGEST = 80


class Level(StrEnum):
    """How long a description is."""

    FULL = "full"
    SENTENCE = "sentence"
    WORDS = "words"


@dataclass(frozen=True)
class ShortDescription:
    """A tool's description in at most five words; `is_clear` is False if another tool has the same."""

    text: str
    is_clear: bool


class _Word(NamedTuple):
    """A word as written, its term, and its position."""

    written: str
    term: str
    place: int


def at_level(tool: McpTool, level: Level, short: ShortDescription | None = None) -> str:
    """The description at a level; unclear words are not used."""
    full = tidy(tool.description or "")
    if level is Level.FULL:
        return full
    if level is Level.WORDS and short is not None and short.is_clear:
        warning = deprecation(full)
        return f"{short.text}. {warning}" if warning else short.text
    return opening(full)


def five_words(tools: Sequence[McpTool]) -> list[ShortDescription]:
    """Short descriptions for all tools of a catalog, each chosen with the others in view."""
    read = [_read(_source(tool)) for tool in tools]
    rarity = _rarity(tools, read)
    ranked = [_ranked(tool, found, rarity) for tool, found in zip(tools, read, strict=True)]
    chosen = [_in_order(words[:MOST_WORDS]) for words in ranked]
    unclear = _tell_apart(chosen, ranked)
    return [
        ShortDescription(_written(words), bool(words) and position not in unclear)
        for position, words in enumerate(chosen)
    ]


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
    return 0 < len(text.split()) <= MOST_WORDS and bool(terms(text)) and text.isprintable() and len(text) <= _LONGEST


def _source(tool: McpTool) -> str:
    return (tool.description or tool.title or tool.name)[:_LONGEST_SOURCE]


def _read(source: str) -> list[_Word]:
    """The meaningful words, in order, with repetitions."""
    # An address is not a word. Blanks replace it, so every other word keeps its position.
    text = _LINK.sub(lambda link: " " * len(link.group()), source)
    return [
        _Word(match.group(), term, match.start())
        for match in _WORD.finditer(text)
        for term in _first_term(match.group())
    ]


@lru_cache(maxsize=50_000)
def _first_term(word: str) -> list[str]:
    return terms(word)[:1] if len(word) <= _LONGEST_WORD else []


def _rarity(tools: Sequence[McpTool], read: Sequence[Sequence[_Word]]) -> Mapping[str, float]:
    """The weight of each term: the fewer tools have it, the higher."""
    counts: Counter[str] = Counter()
    for tool, words in zip(tools, read, strict=True):
        counts.update({*terms(tool.name), *(word.term for word in words)})
    return {term: math.log((len(tools) + 1) / count) for term, count in counts.items()}


def _ranked(tool: McpTool, words: Sequence[_Word], rarity: Mapping[str, float]) -> list[_Word]:
    """Every word once, at its first position, most distinctive first."""
    early = len(first_sentence(_source(tool)))
    named = set(terms(tool.name))
    uses = Counter(word.term for word in words)
    first = {word.term: word for word in reversed(words)}

    def weight(word: _Word) -> float:
        # A repeated word is what the text is about; a word already in the name adds little.
        found = rarity[word.term] * (1 + math.log(uses[word.term]))
        found *= _EARLY if word.place < early else 1.0
        found *= _NAMED if word.term in named else 1.0
        return found * (_LITTLE if word.written.lower() in _SAYING_LITTLE or word.term.isdigit() else 1.0)

    return sorted(first.values(), key=lambda word: (-weight(word), word.place))


def _in_order(words: Iterable[_Word]) -> tuple[_Word, ...]:
    return tuple(sorted(words, key=lambda word: word.place))


def _tell_apart(chosen: list[tuple[_Word, ...]], ranked: Sequence[Sequence[_Word]]) -> set[int]:
    """Where two tools got the same words, look for one that differs; returns the positions where there is none."""
    same: dict[frozenset[str], list[int]] = defaultdict(list)
    for position, words in enumerate(chosen):
        same[_terms(words)].append(position)
    unclear: set[int] = set()
    for positions in [found for found in same.values() if len(found) > 1]:
        common = frozenset.intersection(*(_terms(ranked[position]) for position in positions))
        for position in positions:
            own = [word for word in ranked[position] if word.term not in common]
            kept = chosen[position][: MOST_WORDS - 1]
            replacement = _in_order([*kept, own[0]]) if own else chosen[position]
            if _terms(replacement) in same and same[_terms(replacement)] != [position]:
                unclear.add(position)
            else:
                same[_terms(replacement)] = [position]
                chosen[position] = replacement
    return unclear


def _terms(words: Iterable[_Word]) -> frozenset[str]:
    return frozenset(word.term for word in words)


def _written(words: Sequence[_Word]) -> str:
    text = " ".join(word.written for word in words)
    return text[:1].upper() + text[1:]
