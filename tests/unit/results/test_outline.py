"""An outline names keys, never values, and is short whatever the value is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.results.projection import SIZES, outlines
from mcp_optimizer.token_counter import TokenCounter

COUNT = TokenCounter().count_tokens

CASES: list[tuple[Any, str]] = [
    ({"total": 2, "cards": [{"id": 1}, {"id": 2, "title": "x"}]}, "{total, cards[]: {id, title}}"),
    ([{"id": 1}], "[]: {id}"),
    ({"rows": [[1, 2]], "tags": ["a"], "none": [], "empty": {}}, "{rows[][], tags[], none: [], empty: {}}"),
    ({"a b": 1, "ü": 2, "x-y": 3, "\x9b": 4, 'q"': 5}, '{"a b", "ü", "x-y", "\\u009b", "q\\""}'),
    ({"a": {"b": {"c": {"d": {"e": 1}}}}}, "{a: {b: {c: {d: {…}}}}}"),
]


@pytest.mark.parametrize(("value", "outline"), CASES)
def test_an_outline_is_written_like_the_expressions_that_select(value: Any, outline: str) -> None:
    assert outlines([value])[0] == outline


def test_what_does_not_fit_is_counted() -> None:
    assert outlines([{f"key_{number}": 1 for number in range(1_000)}])[-1].endswith(" more}")


@pytest.mark.parametrize("value", [1, "text", None, True])
def test_what_has_no_keys_has_no_outline(value: Any) -> None:
    assert outlines([value]) == []


def nested(levels: int, around: Callable[[Any], Any]) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = around(value)
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "a million keys": lambda: {str(number): number for number in range(1_000_000)},
    "keys of a megabyte": lambda: {"k" * 1_000_000 + str(number): 1 for number in range(5)},
    "keys of strange characters": lambda: {"\U000e0001\ud800" * 100 + str(number): 1 for number in range(50)},
    "objects a thousand deep": lambda: nested(1_000, lambda inner: {"a": inner}),
    "lists a thousand deep": lambda: nested(1_000, lambda inner: [inner]),
    "a million elements": lambda: [{"id": 1}] * 1_000_000,
    "wide and deep": lambda: nested(50, lambda inner: {f"k{at}": inner for at in range(50)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_an_outline_is_short_and_quick_whatever_the_value(name: str) -> None:
    value = HOSTILE[name]()
    started = time.perf_counter()
    found = outlines([value])
    assert time.perf_counter() - started < 0.5
    assert 0 < len(found) <= len(SIZES)
    assert all(len(text.encode()) <= size for text, size in zip(found, SIZES, strict=False))
    assert COUNT(found[-1]) <= SIZES[-1]


JSON = st.recursive(
    st.sampled_from(["secret", 4711, True, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b b", "ü"]), inner, max_size=3),
)


@given(JSON)
def test_an_outline_holds_no_value(value: Any) -> None:
    for text in outlines([value]):
        assert "secret" not in text
        assert "4711" not in text
        assert text.count("{") == text.count("}")
        assert json.dumps(text)
