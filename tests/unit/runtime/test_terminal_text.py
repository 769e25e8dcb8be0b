"""Text from servers is readable in a terminal and cannot control it."""

from __future__ import annotations

import pytest

from mcp_optimizer.runtime.terminal_text import counted, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31merror:\x1b[0m no such file", "error: no such file"),
        ("\x1b[1;38;5;214mwarning\x1b[m", "warning"),
        ("\x1b[2J\x1b[H\x9b1Agone", "gone"),
        ("\x1b]0;a new title\x07text", "text"),
        ("\x1b]8;;https://example.com\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("\x1b]0;never ended", "]0;never ended"),
        ("beep\x07 back\x08space\x00", "beep backspace"),
        ("\u202ereversed\u2066", "reversed"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("[31m is a text like any other", "[31m is a text like any other"),
    ],
)
def test_nothing_moves_the_cursor_or_recolours_and_no_letters_of_it_are_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_count_of_one_is_singular() -> None:
    assert [counted(count, "tool") for count in (0, 1, 1_200)] == ["0 tools", "1 tool", "1,200 tools"]
