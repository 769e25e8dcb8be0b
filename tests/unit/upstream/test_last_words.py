"""The line of stderr that tells why, of what programs really write (`stderr_shapes.toml`)."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_optimizer.upstream.diagnostics import telling_line

SHAPES = tomllib.loads(Path(__file__).with_name("stderr_shapes.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SHAPES)
def test_the_line_that_tells_is_found(name: str) -> None:
    assert telling_line(SHAPES[name]["stderr"].splitlines()) == SHAPES[name]["tells"]


@given(st.lists(st.text(max_size=60), max_size=30))
@example(["\r"])
@example(["│ \u3000 │"])
def test_any_lines_are_read_and_nothing_is_made_up(lines: list[str]) -> None:
    found = telling_line(lines)
    assert bool(found) <= any(line.strip() for line in lines)


@pytest.mark.parametrize("line", ["npm error " + " " * 500, "x " * 250, "a." * 250, "Error" * 100, "╰─▶" * 160])
def test_lines_made_to_be_slow_are_read_at_once(line: str) -> None:
    started = time.monotonic()
    telling_line([line] * 50)
    assert time.monotonic() - started < 0.5
