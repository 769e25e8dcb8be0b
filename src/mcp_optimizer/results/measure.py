"""Measures whether texts fit a number of tokens, without counting where the answer is obvious. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.results.reading import Text, decoded
from mcp_optimizer.results.room import Count, Room, Shown, parts

GAP = 2
"""Tokens that a client may put between two texts."""

_COUNTED = 1 << 16
"""Bytes of a large text counted at once."""


class Measure:
    """Counts tokens, but only where the answer is not obvious."""

    def __init__(self, count: Count) -> None:
        self._count = count

    def __call__(self, data: bytes) -> int:
        return self._count(decoded(data))

    def fits(self, data: bytes, budget: int, shown: Shown = bytes) -> bool:
        """Whether the shown part of a text fits the budget."""
        return self.room(budget, shown)(data)

    def room(self, budget: int, shown: Shown = bytes) -> Room:
        """Room for so many tokens of texts that are shown like that."""
        return Room(budget, self._count, shown)

    def text_fits(self, texts: Sequence[Text], budget: int) -> bool:
        """Whether the texts fit the budget. Every text is measured, however well it compresses."""
        budget -= GAP * (len(texts) - 1)
        return sum(map(_bytes_of, texts)) <= budget or self._within(texts, budget)

    def _within(self, texts: Sequence[Text], budget: int) -> bool:
        counted = 0
        for text in texts:
            for part in _parts_of(text):
                counted += self._count(part)
                if counted > budget:
                    return False
        if all(isinstance(text, str) for text in texts):
            return True
        # Splitting a large text anywhere may change the count by a token.
        return sum(self._count(text if isinstance(text, str) else text.parsed()) for text in texts) <= budget


def _bytes_of(text: Text) -> int:
    if isinstance(text, LargeText):
        return text.size
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _parts_of(text: Text) -> Iterator[str]:
    if isinstance(text, LargeText):
        return text.parts(_COUNTED)
    return parts(text)
