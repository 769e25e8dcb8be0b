"""Verifying finds lines that were changed, removed, repeated or added by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_optimizer.access.audit.audit_file import AuditFile, aside, kept_files, verify
from mcp_optimizer.domain.audit import AuditEntry

Lines = list[bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Six lines of two processes: two, two of the other, one, one."""
    path = tmp_path / "audit.jsonl"
    one, other = AuditFile(path, 10, 5), AuditFile(path, 10, 5)
    for file, count in ((one, 2), (other, 2), (one, 1), (other, 1)):
        file.append([AuditEntry(number, tool="echo") for number in range(count)])
    return path


def without(*numbers: int) -> Callable[[Lines], Lines]:
    return lambda lines: [line for number, line in enumerate(lines, start=1) if number not in numbers]


def changed(number: int) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        return [line.replace(b"echo", b"evil") if at == number else line for at, line in enumerate(lines, start=1)]

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without(), []),
        (without(2), ["line 2: the line that stood before it is missing or was changed", "line 4: 1 lines before it"]),
        (without(1), ["line 1: the 1 lines before it in its chain are missing"]),
        (without(4), ["line 5: 1 lines before it in its chain are missing"]),
        (without(1, 2), ["line 1: the line that stood before it", "line 3: the 2 lines before it"]),
        (changed(1), ["line 2: the line before it in its chain was changed"]),
        (changed(4), ["line 6: the line before it in its chain was changed"]),
        (lambda lines: [*lines, lines[4]], ["line 7: a line of its chain stands there twice"]),
        (lambda lines: [lines[1], lines[0], *lines[2:]], ["line 1: the 1 lines", "line 2: a line of its chain"]),
        (lambda lines: [*lines, b'{"tool":"echo"}'], ["line 7: not a line of an audit"]),
        (lambda lines: [*lines, lines[-1][:40]], ["line 7: not a line of an audit"]),
        (lambda lines: [*lines, b"[" * 100_000], ["line 7: not a line of an audit"]),
        (
            lambda lines: [*lines, b'{"chain":"c","number":0,"previous":"","after":5}'],
            ["line 7: not a line of an audit"],
        ),
        (lambda lines: [*lines, b'{"chain":1,"number":true,"previous":null}'], ["line 7: not a line of an audit"]),
    ],
)
def test_what_was_done_to_the_file_is_found(path: Path, change: Callable[[Lines], Lines], expected: list[str]) -> None:
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    problems = verify([path], is_complete=True).problems
    assert len(problems) >= len(expected)
    for wanted in expected:
        assert any(wanted in problem for problem in problems), problems
    assert bool(problems) == bool(expected)


def rotated(path: Path, files: int = 3) -> list[Path]:
    """What is kept of twenty processes, one after the other, beside one that is busy and one that is hardly ever."""
    busy, idle = (AuditFile(path, 0.02, files) for _ in range(2))
    idle.append([AuditEntry(0, tool="idle")])
    for process in range(20):
        file = AuditFile(path, 0.02, files)
        for number in range(10):
            file.append([AuditEntry(number, tool=f"{process}-{number}")])
            busy.append([AuditEntry(number, tool="busy")] * (number % 3))
    idle.append([AuditEntry(1, tool="idle")])
    kept, is_complete = kept_files(path, files)
    assert (len(kept), is_complete) == (files + 1, False)
    return kept


@pytest.mark.parametrize("files", [0, 1, 3])
def test_what_was_put_aside_and_deleted_is_not_missed(tmp_path: Path, files: int) -> None:
    assert verify(rotated(tmp_path / "audit.jsonl", files), is_complete=False).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("place", range(4))
def test_lines_deleted_around_a_restart_are_missed_in_every_file(tmp_path: Path, place: int) -> None:
    kept = rotated(tmp_path / "audit.jsonl")
    lines = kept[place].read_bytes().splitlines(keepends=True)
    begun = next(at for at, line in enumerate(lines) if b'"number":0,' in line and at > 4)
    own = [at for at, line in enumerate(lines) if b'"busy"' not in line]
    # The end of one process and the beginning of the next; what the busy one wrote meanwhile stays.
    gone = {at for at in own if begun - 5 <= at <= begun + 4}
    kept[place].write_bytes(b"".join(line for at, line in enumerate(lines) if at not in gone))
    problems = verify(kept, is_complete=False).problems
    assert any("lines before it in its chain are missing" in problem for problem in problems), problems
    assert all(problem.startswith(f"{kept[place].name}, ") for problem in problems)


@pytest.mark.parametrize("place", [1, 2])
def test_a_file_that_is_missing_in_the_middle_is_missed(tmp_path: Path, place: int) -> None:
    kept = rotated(tmp_path / "audit.jsonl")
    assert verify([*kept[:place], *kept[place + 1 :]], is_complete=False).problems


def test_files_are_read_from_the_oldest_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert kept_files(path, 3) == ([], True)
    for name in (path, aside(path, 1), aside(path, 2), aside(path, 3)):
        name.touch()
    assert kept_files(path, 3) == ([aside(path, 3), aside(path, 2), aside(path, 1), path], False)
    assert kept_files(path, 5)[1]


def test_a_line_that_does_not_end_is_not_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"x" * 5_000_000)
    found = verify([path], is_complete=True)
    assert found.lines == len(found.problems) == 5


def test_of_very_many_problems_the_first_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"\n" * 10_000)
    found = verify([path], is_complete=True)
    assert (found.lines, len(found.problems)) == (10_000, 100)
