"""A list's pages are followed to their end, and never for ever."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mcp_optimizer.upstream.listing import Cursor


def test_each_page_names_the_next_until_one_names_none() -> None:
    cursor, asked = Cursor(), []
    for page in ({"nextCursor": "b"}, {"nextCursor": "c"}, {}):
        asked.append(cursor.params)
        cursor.follow(page)
    assert asked == [{}, {"cursor": "b"}, {"cursor": "c"}]
    assert not cursor.has_more


@pytest.mark.parametrize("following", [None, "", 7, ["a"], {"a": 1}, "x" * 10_001], ids=lambda value: str(value)[:12])
def test_what_is_no_cursor_ends_the_list(following: Any) -> None:
    cursor = Cursor()
    cursor.follow({"nextCursor": following})
    assert not cursor.has_more


def test_a_repeated_cursor_ends_the_list() -> None:
    cursor = Cursor()
    for following in ("a", "b", "a"):
        cursor.follow({"nextCursor": following})
    assert not cursor.has_more


def test_a_server_that_always_names_another_page_is_followed_a_thousand_times() -> None:
    cursor = Cursor()
    for number in itertools.count(1):
        cursor.follow({"nextCursor": str(number)})
        if not cursor.has_more:
            break
    assert number == 1_000
