"""Checks the chains in an audit file and its rotated files: reports missing and changed lines.

Called by the command `audit --verify`. Not detectable: a change to or removal of the last line of a chain, or of a
whole chain, if nothing was written after it; and a file that was rewritten completely.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_optimizer.access.audit.audit_file import aside, hash_of

_LONGEST_LINE = 1_000_000
_MOST_PROBLEMS = 100
_NEAR = 1_000
"""Recent lines searched for the one that a line claims to follow: a batch may have been written in between."""


@dataclass(frozen=True)
class Verified:
    """The files and lines that were checked, and the problems found."""

    files: tuple[Path, ...]
    lines: int
    chains: int
    problems: tuple[str, ...]


def kept_files(path: Path, files: int) -> tuple[list[Path], bool]:
    """The file and its rotated files, oldest first; and whether none can have been deleted by rotation."""
    found = [old for number in range(files, 0, -1) if (old := aside(path, number)).exists()]
    return [*found, *([path] if path.exists() else [])], len(found) < files


def verify(paths: Sequence[Path], *, is_complete: bool) -> Verified:
    """Check the files, oldest first. `is_complete`: no older file was deleted by rotation."""
    check = _Check(is_complete=is_complete)
    for path in paths:
        for number, line in enumerate(_lines(path), start=1):
            if (problem := check.problem_with(line)) is not None:
                check.note(f"{path.name}, line {number}: {problem}")
    return Verified(tuple(paths), check.lines, len(check.chains), tuple(check.problems))


class _Check:
    def __init__(self, *, is_complete: bool) -> None:
        self._is_complete = is_complete
        self._recent: deque[str] = deque(maxlen=_NEAR)
        self.chains: dict[str, tuple[int, str]] = {}
        self.lines = 0
        self.problems: list[str] = []

    def note(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)

    def problem_with(self, line: bytes) -> str | None:
        """The problem with the next line, if any."""
        self.lines += 1
        link = _link(line)
        found = hash_of(line)
        if link is None:
            self._recent.append(found)
            return "not a line of an audit, or only a part of one"
        chain, number, previous, after = link
        before = self.chains.get(chain)
        if before is None:
            problem = self._first(number, previous, after)
        else:
            problem = _next(before, number, previous) or self._place(after)
        self.chains[chain] = (number, found)
        self._recent.append(found)
        return problem

    def _first(self, number: int, previous: str, after: str | None) -> str | None:
        """The problem with the first line found of a chain, if any."""
        if not number:
            return self._place(previous)
        if self._is_complete:
            return f"the {number:,} lines before it in its chain are missing"
        # Earlier lines may have been deleted by rotation, but only together with their file.
        return "lines before it in its chain are missing" if after is None else self._place(after)

    def _place(self, after: str | None) -> str | None:
        """The problem with a line that names the line before it, if any."""
        is_oldest = not self._recent and not self._is_complete
        if after and after not in self._recent and not is_oldest:
            return "the line that stood before it is missing or was changed"
        return None


def _next(before: tuple[int, str], number: int, previous: str) -> str | None:
    last, found = before
    if number > last + 1:
        return f"{number - last - 1:,} lines before it in its chain are missing"
    if number <= last:
        return "a line of its chain stands there twice, or in another order"
    return None if previous == found else "the line before it in its chain was changed"


def _link(line: bytes) -> tuple[str, int, str, str | None] | None:
    try:
        values: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    chain, number, previous = values.get("chain"), values.get("number"), values.get("previous")
    if not isinstance(chain, str) or type(number) is not int or number < 0 or not isinstance(previous, str):
        return None
    after = values.get("after")
    return (chain, number, previous, after) if after is None or isinstance(after, str) else None


def _lines(path: Path) -> Iterator[bytes]:
    """Each line without its newline; an overlong line comes in parts, none of which is a valid audit line."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            yield line.removesuffix(b"\n")
