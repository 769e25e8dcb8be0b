"""What is wrong with a script, as the model that wrote it reads it. Pure.

A problem names its line and, where there is one, the right spelling. None repeats more of the script than a name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice

from mcp_optimizer.runtime.terminal_text import printable

_LONGEST_NAME = 60
_LONGEST_MESSAGE = 300
_MOST_SKIMMED = 5_000
_MOST_COMPARED = 40
"""Names that are compared letter by letter, which takes up to a millisecond each."""

_MOST_LISTED = 12
_CUTOFF = 0.6
_SHORTEST_SLIP = 5


@dataclass(frozen=True)
class Problem:
    """One mistake. A warning comes from what was seen in results, and refuses nothing."""

    line: int
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def problem(line: int, message: str, *, is_warning: bool = False) -> Problem:
    """A problem whose message is bounded and stays on its line."""
    one = printable(" ".join(message.split()))
    return Problem(line, one if len(one) <= _LONGEST_MESSAGE else f"{one[:_LONGEST_MESSAGE]}…", is_warning)


def shown(name: str) -> str:
    """A name of the script or of a server, quoted and bounded."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or nothing."""
    return next(iter(near_names(name, known, 1, _CUTOFF)), "")


def near_names(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    """The names most like one. A server may have thousands, of any letters: those that share the most pairs of letters
    with it are compared.
    """
    candidates = [one for one in islice(known, _MOST_SKIMMED) if len(one) <= 2 * _LONGEST_NAME]
    folded = {_folded(one): one for one in reversed(candidates)}
    wanted = _folded(name[: 2 * _LONGEST_NAME])
    if wanted in folded:
        return [folded[wanted]]
    pairs = _pairs(wanted)
    likely = nlargest(_MOST_COMPARED, folded, key=lambda one: len(pairs & _pairs(one)) / (len(one) + len(wanted) + 1))
    return [folded[one] for one in difflib.get_close_matches(wanted, likely, n=most, cutoff=cutoff)]


def is_slip(name: str, meant: str) -> bool:
    """Whether a name is another one, misspelt in its capitals or in one letter of several; a plural is not."""
    one, other = sorted((_folded(name), _folded(meant)), key=len)
    if one == other:
        return name != meant
    if len(one) < _SHORTEST_SLIP or len(other) - len(one) > 1 or f"{one}s" == other:
        return False
    if len(one) == len(other):
        return sorted(one) == sorted(other) or sum(a != b for a, b in zip(one, other, strict=True)) == 1
    return any(other[:at] + other[at + 1 :] == one for at in range(len(other)))


def hint(name: str, known: Iterable[str], what: str) -> str:
    """` Did you mean ...?`, or the names that there are."""
    known = list(known)
    if near := nearest(name, known):
        return f" Did you mean {near}?"
    if not known:
        return f" There are no {what}."
    more = ", ..." if len(known) > _MOST_LISTED else ""
    return f" The {what}: {', '.join(shown(one)[1:-1] for one in known[:_MOST_LISTED])}{more}."


def _pairs(name: str) -> set[str]:
    return {name[at : at + 2] for at in range(len(name))}


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
