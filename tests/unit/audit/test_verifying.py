"""Verifying finds lines that were changed, removed, repeated or added by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_optimizer.audit.file import AuditFile, aside
from mcp_optimizer.audit.verifying import kept_files, verify
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


def test_what_was_put_aside_and_deleted_is_not_missed(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[3:]))
    assert verify([path], is_complete=False).problems == ()


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
