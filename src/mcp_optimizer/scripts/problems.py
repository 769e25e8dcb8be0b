"""Words a script's mistakes for the model that wrote it, and holds the result of its check. Pure.

A problem names its line and, if there is one, the correct spelling. It quotes no more of the script than a name. Errors
are reported before the script runs; warnings are kept in case it fails.
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
"""Names that are compared letter by letter, at up to a millisecond each."""

_MOST_LISTED = 12
_CUTOFF = 0.6
_SHORTEST_SLIP = 5


@dataclass(frozen=True)
class Problem:
    """One mistake. A warning is inferred from earlier results and never refuses a script."""

    line: int
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def problem(line: int, message: str, *, is_warning: bool = False) -> Problem:
    """A problem whose message has a limited length and stays on one line."""
    one = printable(" ".join(message.split()))
    return Problem(line, one if len(one) <= _LONGEST_MESSAGE else f"{one[:_LONGEST_MESSAGE]}…", is_warning)


def shown(name: str) -> str:
    """A name from a script or server, quoted and cut to a limit."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or ""."""
    return next(iter(near_names(name, known, 1, _CUTOFF)), "")


def near_names(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    """The known names most similar to a name. A server may have thousands of them, in any script, so only those that
    share the most letter pairs with it are compared in full.
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
    """Whether a name is a misspelling of another: other capitals, or one wrong letter of several. A plural is not."""
    one, other = sorted((_folded(name), _folded(meant)), key=len)
    if one == other:
        return name != meant
    if len(one) < _SHORTEST_SLIP or len(other) - len(one) > 1 or f"{one}s" == other:
        return False
    if len(one) == len(other):
        return sorted(one) == sorted(other) or sum(a != b for a, b in zip(one, other, strict=True)) == 1
    return any(other[:at] + other[at + 1 :] == one for at in range(len(other)))


def hint(name: str, known: Iterable[str], what: str) -> str:
    """` Did you mean ...?`, or the list of known names."""
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


_MOST_REMARKS = 3


@dataclass(frozen=True)
class CheckResult:
    """The problems by line, errors before warnings."""

    problems: tuple[Problem, ...] = ()
    unreadable: str = ""
    """Why the script cannot be parsed at all."""

    @property
    def refusals(self) -> list[str]:
        """Why the script is not run, worded for its author; empty if it may run."""
        found = [str(one) for one in self.problems if not one.is_warning]
        return [self.unreadable, *found] if self.unreadable else found

    def remarks(self, line: int | None, *, is_of_a_tool: bool) -> list[str]:
        """Warnings for an author whose script failed on a line: those on that line, or on earlier lines where a wrong
        value may come from. `is_of_a_tool`: a tool failed, so only warnings on its own line can explain it.
        """
        seen = [one for one in self.problems if one.is_warning and line is not None and one.line <= line]
        there = [one for one in seen if one.line == line]
        near = there or ([] if is_of_a_tool else seen[-_MOST_REMARKS:])
        return [f"In earlier results, {one.message} (line {one.line})" for one in near[:_MOST_REMARKS]]
