"""Case-sensitive name patterns with `*`, `?` and `[...]`. Used by rules and risks.

Matching takes time proportional to the name, whatever the pattern: between two stars, the first match is as good as
any, so there is no backtracking. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

LONGEST_PATTERN: Final = 500
EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class Piece:
    """The part between two stars, with a fixed length: a literal, or a regular expression without repetition."""

    length: int
    literal: str | None = None
    expression: re.Pattern[str] | None = None

    def at(self, name: str, place: int) -> bool:
        if self.expression is None:
            return name.startswith(self.literal or "", place)
        return self.expression.match(name, place) is not None

    def after(self, name: str, place: int, end: int) -> int:
        """The end of the first match in the name; -1 if there is none."""
        if self.expression is None:
            found = name.find(self.literal or "", place, end)
        else:
            match = self.expression.search(name, place, end)
            found = -1 if match is None else match.start()
        return found if found < 0 else found + self.length


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern."""

    pattern: str
    pieces: tuple[Piece, ...]
    """The parts between stars: one more than there are stars."""
    plain: tuple[str, ...] | None
    """The pieces as texts, if the pattern has no wildcards but stars: most patterns, and compared much faster."""
    literals: tuple[str, ...]
    """Every sequence of literal characters that a matching name must contain."""

    @property
    def is_everything(self) -> bool:
        return len(self.pieces) > 1 and not any(piece.length for piece in self.pieces)

    @property
    def is_literal(self) -> bool:
        return len(self.pieces) == 1 and self.pieces[0].expression is None

    @property
    def prefix(self) -> str:
        """The prefix that a name must have, if everything before the first star is literal."""
        return self.pieces[0].literal or ""

    @property
    def suffix(self) -> str:
        """The suffix that a name must have, if everything after the last star is literal."""
        return self.pieces[-1].literal or ""

    @property
    def text(self) -> str:
        """The only name that a literal pattern matches."""
        return self.pieces[0].literal or ""

    def matches(self, name: str) -> bool:
        if self.plain is None:
            return self._matches_pieces(name)
        begin, *middle, last = self.plain
        place, end = len(begin), len(name) - len(last)
        if place > end or not name.startswith(begin) or not name.endswith(last):
            return False
        for text in middle:
            found = name.find(text, place, end)
            if found < 0:
                return False
            place = found + len(text)
        return True

    def _matches_pieces(self, name: str) -> bool:
        first, last = self.pieces[0], self.pieces[-1]
        if len(self.pieces) == 1:
            return first.length == len(name) and first.at(name, 0)
        place, end = first.length, len(name) - last.length
        if place > end or not first.at(name, 0) or not last.at(name, end):
            return False
        for piece in self.pieces[1:-1]:
            place = piece.after(name, place, end)
            if place < 0:
                return False
        return True


@lru_cache(maxsize=50_000)
def glob(pattern: str) -> Glob:
    """Compiles a pattern. Raises ValueError with the mistake in it."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {LONGEST_PATTERN} characters, not {len(pattern):,}")
    pieces: list[Piece] = []
    literals: list[str] = []
    signs: list[str] = []
    for sign in [*_signs(pattern), EVERYTHING]:
        if sign == EVERYTHING:
            pieces.append(_piece(signs, literals))
            signs = []
        else:
            signs.append(sign)
    texts = tuple(piece.literal for piece in pieces if piece.literal is not None)
    plain = texts if len(texts) == len(pieces) > 1 else None
    return Glob(pattern, tuple(pieces), plain, tuple(literals))


def _piece(signs: list[str], literals: list[str]) -> Piece:
    """The piece for these signs; its literal parts are added to `literals`."""
    stretch = ""
    for sign in [*signs, "?"]:
        if len(sign) == 1 and sign != "?":
            stretch += sign
        elif stretch:
            literals.append(stretch)
            stretch = ""
    if all(len(sign) == 1 and sign != "?" for sign in signs):
        return Piece(len(signs), "".join(signs))
    expression = "".join("." if sign == "?" else sign if len(sign) > 1 else re.escape(sign) for sign in signs)
    return Piece(len(signs), None, re.compile(expression, re.DOTALL))


def _signs(pattern: str) -> Iterator[str]:
    """The signs of a pattern: a plain character, `?`, `*`, or a character class as in regular expressions."""
    place = 0
    while place < len(pattern):
        if pattern[place] != "[":
            yield pattern[place]
            place += 1
            continue
        # As in a shell, a bracket right after the opening one is a character of the class: `[]]`, `[!]]`.
        inside = place + 2 if pattern[place + 1 : place + 2] == "!" else place + 1
        end = pattern.find("]", inside + 1)
        if end < 0:
            raise ValueError(f"the pattern {pattern!r} has a [ that is not closed; write [[] for the character itself")
        yield _class(pattern, pattern[inside:end], is_negated=inside == place + 2)
        place = end + 1


def _class(pattern: str, members: str, *, is_negated: bool) -> str:
    found = []
    place = 0
    while place < len(members):
        low, dash, high = members[place], members[place + 1 : place + 2], members[place + 2 : place + 3]
        if dash == "-" and high:
            if low > high:
                raise ValueError(f"the pattern {pattern!r} has a range that runs backwards: {low}-{high}")
            found.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 3
        else:
            found.append(re.escape(low))
            place += 1
    return f"[{'^' if is_negated else ''}{''.join(found)}]"
