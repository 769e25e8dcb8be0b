"""Finds how much of a text fits a number of tokens, without counting anything twice. Pure.

Used to cut results. Adds up the items of a text in steps until the budget is exceeded, then narrows down the last step.
Texts that obviously fit, or obviously do not, are not counted.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.results.encodings import Minifier
from mcp_optimizer.results.result_texts import Text, decoded
from mcp_optimizer.runtime.patterns import regex

Count = Callable[[str], int]
Shown = Callable[[bytes], bytes]

_CERTAINLY_TOO_LONG = 64
"""Bytes per token of the budget beyond which a text is too long without counting."""

_STEP = 4_096
"""Bytes of items added per step."""

_CLOSE_ENOUGH = 50
"""Divisor: a difference below this share of the items that fit is not worth another measurement."""

_SLACK = 16
"""Tokens by which the beginning of a text may exceed the complete text."""

_PART = 2_048
"""Characters counted at once, and remembered."""

_REMEMBERED = 64 * 1024
"""Maximum characters of a text of many parts whose total is remembered; there may be many variants of a longer one."""

_DIVIDES = regex(r"[^A-Za-z0-9'\u0080-\U0010ffff](?<=[A-Za-z0-9].)", re.DOTALL)
"""The character before which a text can be divided without changing its tokens.

Encodings first divide a text into words by a pattern, then each word into tokens. In cl100k_base and o200k_base a word
always ends after a letter or digit that is followed by an ASCII character other than a letter, a digit, or an
apostrophe, which may continue the word ("we're"). The tokens before such a place do not depend on the text after it.
(Looking for that character and then back takes a fifth of the time in a text without one, such as base64.)
"""


class PartwiseCount:
    """Counts long texts in parts whose tokens add up exactly, each part once.

    Texts with the same beginning share parts, so counting ever longer beginnings of a text costs little more than
    counting it once. Lives as long as the work on one result.
    """

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._count(text) if len(text) <= _PART else sum(map(self._of_part, parts(text)))
            if len(text) <= _REMEMBERED:
                self._known[text] = found
        return found

    def _of_part(self, part: str) -> int:
        found = self._known.get(part)
        if found is None:
            found = self._known[part] = self._count(part)
        return found


def parts(text: str) -> Iterator[str]:
    """Divide a text into parts whose tokens add up to those of the text."""
    at = 0
    while found := _DIVIDES.search(text, at + _PART + 1):
        yield text[at : found.start()]
        at = found.start()
    yield text[at:]


@dataclass(frozen=True)
class _Reached:
    """The first `number` items: tokens of their shown text up to the last place where it divides, and its rest."""

    number: int
    settled: int
    rest: str


@dataclass(frozen=True)
class Counted:
    """Items that are counted one after the other: `end(n)` is where the first n items end in the data, `kept(n)` is
    the text with only those.
    """

    data: bytes
    count: int
    end: Callable[[int], int]
    kept: Callable[[int], bytes]
    tail: bytes = b""
    """The text after the items in `kept`."""
    are_in_string: bool = False
    """Whether the items are parts of a JSON string or of plain text, in which all whitespace is kept."""
    reached: list[_Reached] = field(default_factory=list)
    """The steps counted so far, without text around the items."""

    def first(self, number: int) -> Counted:
        """Only the first `number` items, with the counts known for them."""
        return replace(self, count=number, reached=[reached for reached in self.reached if reached.number <= number])

    def number(self, place: int, after: int) -> int:
        """How many items end at or before a position; at least one more than `after`."""
        return max(bisect_right(range(self.count + 1), place, lo=after, key=self.end) - 1, after + 1)


@dataclass(frozen=True)
class Room:
    """A budget of tokens for one text; calling it with a text returns whether the text fits."""

    budget: int
    count: Count
    shown: Shown = bytes
    head: bytes = b""
    tail: bytes = b""
    """The texts shown before and after it."""

    def __call__(self, data: bytes) -> bool:
        data = self.head + data + self.tail
        if len(data) <= self.budget:
            # No encoding produces more tokens than bytes.
            return True
        return len(data) <= self.budget * _CERTAINLY_TOO_LONG and self.count(_decoded(self.shown(data))) <= self.budget

    def around(self, head: bytes, tail: bytes) -> Room:
        """The room left between a head and a tail."""
        return replace(self, head=self.head + head, tail=tail + self.tail)

    def is_exceeded(self, items: Counted) -> bool:
        """Whether the items certainly do not fit; counts no more than is needed to tell."""
        reached, _ = self._walked(items, _SLACK)
        return reached.number < items.count

    def most(self, items: Counted) -> int | None:
        """Approximately the most items that fit; None if the text does not fit even without items."""
        if not self(items.kept(0)):
            return None
        good, bad = self._walked(items)
        while bad - good.number > max(1, good.number // _CLOSE_ENOUGH):
            middle = self._further(items, good, (good.number + bad) // 2)
            if self._has_room_for(items, middle):
                good = middle
            else:
                bad = middle.number
        number = good.number
        while number and not self(items.kept(number)):
            number -= max(1, number // _CLOSE_ENOUGH)
        return number

    def _walked(self, items: Counted, slack: int = 0) -> tuple[_Reached, int]:
        """The last step at which the items fit, and a number of items that does not fit."""
        known = items.reached if not self.head else []
        if not known:
            known.append(self._settled(0, 0, self._around(self.head + items.data[: items.end(0)], b"", items)))
        reached = known[0]
        for step in itertools.count(1):
            if reached.number >= items.count:
                break
            if step == len(known):
                end = items.number(items.end(reached.number) + _STEP, reached.number)
                if items.end(end) > self.budget * _CERTAINLY_TOO_LONG:
                    return reached, end
                known.append(self._further(items, reached, end))
            if not self._has_room_for(items, known[step], slack):
                return reached, known[step].number
            reached = known[step]
        return reached, reached.number + 1

    def _further(self, items: Counted, reached: _Reached, number: int) -> _Reached:
        start, end = items.end(reached.number), items.end(number)
        if items.are_in_string:
            shown = items.data[start:end]
        elif isinstance(self.shown, Minifier):
            shown = self.shown.between(items.data, start, end)
        else:
            shown = self.shown(items.data[start:end])
        return self._settled(number, reached.settled, reached.rest + _decoded(shown))

    def _settled(self, number: int, settled: int, text: str) -> _Reached:
        rest = ""
        for part in parts(text):
            if settled > self.budget + _SLACK:
                break
            settled, rest = settled + (self.count(rest) if rest else 0), part
        return _Reached(number, settled, rest)

    def _has_room_for(self, items: Counted, reached: _Reached, slack: int = 0) -> bool:
        budget = self.budget + slack
        if reached.settled > budget:
            return False
        tail = items.tail + self.tail if reached.number < items.count else self.tail
        rest = reached.rest + self._around(b"", tail, items)
        return reached.settled + _most_tokens(rest) <= budget or reached.settled + self.count(rest) <= budget

    def _around(self, before: bytes, after: bytes, items: Counted) -> str:
        """The shown text before or after the items; a string that it opens or closes is completed to be shown."""
        if not items.are_in_string:
            return _decoded(self.shown(before + after))
        return _decoded(self.shown(before + b'"')[:-1] if before else self.shown(b'"' + after)[1:])


def _most_tokens(text: str) -> int:
    """The maximum tokens of a text: no encoding produces more tokens than bytes, and no character has more than four
    bytes.
    """
    return len(text) if text.isascii() else 4 * len(text)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # A step may begin or end inside a character; the final cut does not.
        return data.decode("utf-8", "replace")


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
        """The room for `budget` tokens of a text as `shown` writes it."""
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
