"""Descriptions at three lengths: full, one sentence, at most five words. Pure.

The five words are the tool's own, from its first sentence and, if that does not suffice, from the rest of its
text: those that tell it from the others in the catalog, in the order in which they stand there. Where no five
words do, that is said, and the sentence stays.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mcp_optimizer.compression.lossless import tidy
from mcp_optimizer.compression.notes import first_sentence
from mcp_optimizer.db.models import McpTool
from mcp_optimizer.search.words import terms

MOST_WORDS = 5

_WORD = re.compile(r"[^\W_][\w'’.+#/-]*[^\W_]|[^\W_]")
_EARLY = 2.5
"""How much more the words of the first sentence count than those after it."""

_LONGEST_SOURCE = 1_500
_LONGEST_WORD = 30


class Level(StrEnum):
    """How long a description is."""

    FULL = "full"
    SENTENCE = "sentence"
    WORDS = "words"


@dataclass(frozen=True)
class ShortDescription:
    """A tool's description in at most five words; `is_clear` is False if they do not tell it from another tool."""

    text: str
    is_clear: bool


@dataclass(frozen=True)
class _Candidate:
    """A word as it is written, the term it stands for, and where it first stands."""

    written: str
    term: str
    place: int
    weight: float


def at_level(tool: McpTool, level: Level, short: ShortDescription | None = None) -> str:
    """The description at a level; words that are not clear are not used."""
    full = tidy(tool.description or "")
    if level is Level.FULL:
        return full
    if level is Level.WORDS and short is not None and short.is_clear:
        return short.text
    return first_sentence(full)


def five_words(tools: Sequence[McpTool]) -> list[ShortDescription]:
    """Short descriptions for all tools of a catalog, each chosen in view of the others."""
    rarity = _rarity(tools)
    chosen = [_choose(_candidates(tool, rarity)) for tool in tools]
    return _told_apart(tools, chosen, rarity)


def _rarity(tools: Sequence[McpTool]) -> Mapping[str, float]:
    counts = Counter(term for tool in tools for term in set(terms(f"{tool.name} {_source(tool)}")))
    return {term: math.log((len(tools) + 1) / count) for term, count in counts.items()}


def _source(tool: McpTool) -> str:
    return (tool.description or tool.title or tool.name)[:_LONGEST_SOURCE]


def _candidates(tool: McpTool, rarity: Mapping[str, float]) -> list[_Candidate]:
    """The words that carry meaning and that the name does not say, the most telling first."""
    source = _source(tool)
    opening = len(first_sentence(source))
    named = set(terms(tool.name))
    uses: Counter[str] = Counter(terms(source))
    found: dict[str, _Candidate] = {}
    for match in _WORD.finditer(source):
        written = match.group()
        for term in _first_term(written):
            if term in found or len(written) > _LONGEST_WORD:
                continue
            early = _EARLY if match.start() < opening else 1.0
            # A word that comes back is what the text is about; one that the name says already is told twice.
            weight = rarity.get(term, 0.0) * early * (1 + math.log(uses[term])) * (0.3 if term in named else 1.0)
            found[term] = _Candidate(written, term, match.start(), weight)
    return sorted(found.values(), key=lambda candidate: (-candidate.weight, candidate.place))


@lru_cache(maxsize=50_000)
def _first_term(word: str) -> list[str]:
    return terms(word)[:1]


def _choose(candidates: Sequence[_Candidate]) -> tuple[_Candidate, ...]:
    return tuple(sorted(candidates[:MOST_WORDS], key=lambda candidate: candidate.place))


def _told_apart(
    tools: Sequence[McpTool], chosen: list[tuple[_Candidate, ...]], rarity: Mapping[str, float]
) -> list[ShortDescription]:
    """Where two tools got the same words, look further for one that differs."""
    same: dict[frozenset[str], list[int]] = defaultdict(list)
    for position, words in enumerate(chosen):
        same[_terms(words)].append(position)
    unclear: set[int] = set()
    for positions in [found for found in same.values() if len(found) > 1]:
        texts = [set(terms(_source(tools[position]))) for position in positions]
        common = set.intersection(*texts)
        for position in positions:
            own = [word for word in _candidates(tools[position], rarity) if word.term not in common]
            kept = list(chosen[position][: MOST_WORDS - 1])
            replacement = tuple(sorted([*kept, own[0]], key=lambda word: word.place)) if own else chosen[position]
            if _terms(replacement) in same and same[_terms(replacement)] != [position]:
                unclear.add(position)
            else:
                same[_terms(replacement)] = [position]
                chosen[position] = replacement
    return [
        ShortDescription(_written(words), bool(words) and position not in unclear)
        for position, words in enumerate(chosen)
    ]


def _terms(words: Iterable[_Candidate]) -> frozenset[str]:
    return frozenset(word.term for word in words)


def _written(words: Sequence[_Candidate]) -> str:
    text = " ".join(word.written for word in words)
    return text[:1].upper() + text[1:]
