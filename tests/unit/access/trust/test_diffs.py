"""Diffs of definitions are small for small changes, show what is hidden, and end."""

from __future__ import annotations

import time

import pytest

from mcp_optimizer.access.trust.review import MOST_LINES, difference, digest

LONG = " ".join(f"Sentence number {number} says something." for number in range(40))


def test_a_change_of_one_sentence_shows_that_sentence() -> None:
    after = LONG.replace("number 20 says", "number 20 does")
    lines = difference({"description": LONG}, {"description": after})
    changed = [line for line in lines if line[0] in "+-" and not line.startswith(("---", "+++"))]
    assert len(changed) == 2
    assert "number 20 does" in changed[1]


def test_what_is_hidden_is_written_out() -> None:
    lines = "\n".join(difference({"description": "a"}, {"description": "a\u200b\x1b[31m\U000e0041"}))
    assert r"\u{200b}" in lines
    assert r"\u{e0041}" in lines
    assert "\x1b" not in lines


def test_a_change_of_blanks_is_a_change() -> None:
    before = {"description": f"{'word ' * 40}end"}
    assert difference(before, {"description": f"{'word ' * 20} {'word ' * 20}end"})
    assert difference(before, before) == []


def test_all_lines_of_a_new_tool_are_new() -> None:
    lines = difference({}, {"name": "a", "description": "one\ntwo"})
    assert [line[0] for line in lines[3:]] == ["+"] * len(lines[3:])


@pytest.mark.slow
def test_a_huge_change_is_cut_and_takes_no_time() -> None:
    started = time.perf_counter()
    before = {"inputSchema": {"properties": {f"p{number}": {"type": "string"} for number in range(30_000)}}}
    after = {"inputSchema": {"properties": {f"q{number}": {"type": "number"} for number in range(30_000)}}}
    lines = difference(before, after)
    assert len(lines) == MOST_LINES + 1
    assert "more lines" in lines[-1]
    assert time.perf_counter() - started < 20


def test_a_digest_stands_for_exactly_what_it_was_made_of() -> None:
    made = digest({"a": "1", "b": "2"}, "id")
    assert made == digest({"b": "2", "a": "1"}, "id")
    assert len({made, digest({"a": "1", "b": "2"}), digest({"a": "1", "b": "3"}, "id"), digest({"a": "1"}, "id")}) == 4
