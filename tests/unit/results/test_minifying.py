"""JSON that is cut loses its blanks part by part, exactly as it would at once."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.results.encodings import Minifier, minified
from mcp_optimizer.results.pages import read_document
from mcp_optimizer.results.result_texts import encoded
from tests.trying import at_most
from tests.unit.results.test_cut import CONTAINERS, STYLES

WINDOWS = st.sampled_from([7, 64, 65, 200, 32_768])


@pytest.mark.slow
@settings(deadline=None)
@given(CONTAINERS, STYLES, WINDOWS)
def test_a_text_is_written_alike_in_windows_of_any_size(value: Any, style: dict[str, Any], window: int) -> None:
    data = encoded(json.dumps(value, **style))
    assert Minifier(window)(data) == minified(data)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=30) | st.integers()), min_size=2, max_size=20),
    STYLES,
    WINDOWS,
)
def test_any_items_of_a_text_are_written_as_if_they_stood_alone(
    rows: list[dict[str, Any]], style: dict[str, Any], window: int
) -> None:
    data = encoded(json.dumps(rows, **style))
    minify, layout = Minifier(window), read_document(data.decode()).layout
    places = [layout.counted.end(number) for number in range(layout.count + 1)]
    for start, end in [*itertools.pairwise(places), (places[0], places[-1]), (places[1], places[1])]:
        assert minify.between(data, start, end) == minified(data[start:end])


def test_a_long_text_with_quotes_in_its_strings_is_written_as_the_slow_way_does() -> None:
    rows = [{"said": 'a "b" \\', "then": "\\\\", "n": number, "é": ", [ {"} for number in range(4_000)]
    data = encoded(json.dumps(rows, indent=3, ensure_ascii=False))
    assert Minifier()(data) == encoded(json.dumps(rows, separators=(",", ":"), ensure_ascii=False))


@pytest.mark.slow
@settings(deadline=None, max_examples=at_most(20))
@given(CONTAINERS, STYLES)
def test_a_large_text_is_minified_at_once_as_the_parser_writes_it(value: Any, style: dict[str, Any]) -> None:
    rows = [{"value": value, "padding": 'x " \\ , : { ' * 20} for _ in range(200)]
    data = encoded(json.dumps(rows, **style))
    assert minified(data) == encoded(json.dumps(rows, **{**style, "indent": None, "separators": (",", ":")}))
