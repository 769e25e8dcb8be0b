"""A cut text keeps its format: JSON of the same shape, complete rows and lines, and never more than fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.largejson.spans import first_filled, items_of
from mcp_optimizer.results.item_layout import json_rows, trunk
from mcp_optimizer.results.pages import read_document
from mcp_optimizer.results.result_texts import NO_JSON, decoded

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()), max_size=40)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=40,
)
CONTAINERS = st.lists(VALUES, max_size=12) | st.dictionaries(st.text(max_size=8), VALUES, max_size=8)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["id", "name", "note", "ä"]), SCALARS, min_size=1), min_size=1, max_size=30
)
STYLES = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 1, "ensure_ascii": False}]
)


def no_longer_than(limit: int) -> Any:
    return lambda data: len(data) <= limit


@pytest.mark.slow
@given(CONTAINERS, STYLES)
def test_the_items_found_in_a_text_are_those_that_parsing_finds(value: Any, style: dict[str, Any]) -> None:
    data = json.dumps(value, **style).encode("utf-8", "surrogatepass")
    items = items_of(data, first_filled(data, 0))
    assert items is not None
    assert items.close == len(data) - 1
    texts = [
        data[start:end].decode("utf-8", "surrogatepass") for start, end in zip(items.starts, items.ends, strict=True)
    ]
    if isinstance(value, list):
        assert [json.loads(text) for text in texts] == value
    else:
        assert json.loads("{" + ",".join(texts) + "}") == value


@pytest.mark.slow
@settings(deadline=None)  # the first document loads numpy
@given(CONTAINERS, STYLES, st.integers(2, 400))
def test_json_that_is_cut_parses_fits_and_keeps_its_top_level_shape(
    value: Any, style: dict[str, Any], limit: int
) -> None:
    text = json.dumps(value, **style)
    cut = read_document(text).cut(no_longer_than(limit))
    assert len(cut.data) <= limit
    kept = json.loads(cut.data.decode("utf-8", "surrogatepass"))
    assert type(kept) is type(value)
    if isinstance(value, dict):
        assert set(kept) <= set(value)


@given(ROWS, STYLES, st.integers(30, 400))
def test_a_table_loses_only_rows_as_long_as_its_envelope_fits(rows: Any, style: dict[str, Any], limit: int) -> None:
    value = {"total": len(rows), "items": rows, "next": None}
    cut = read_document(json.dumps(value, **style)).cut(no_longer_than(max(limit, 120)))
    kept = json.loads(cut.data.decode("utf-8", "surrogatepass"))
    if cut.items:
        assert kept == {**value, "items": rows[: cut.items]}


@given(ROWS, STYLES, st.integers(1, 30))
def test_max_rows_keeps_exactly_so_many(rows: Any, style: dict[str, Any], most: int) -> None:
    text = json.dumps({"columns": ["a"], "rows": rows}, **style)
    cut = read_document(text).cut(lambda _data: True, max_rows=most)
    assert json.loads(cut.data.decode("utf-8", "surrogatepass"))["rows"] == rows[:most]


@pytest.mark.slow
@settings(deadline=None)
@given(
    rows=ROWS,
    path=st.lists(st.sampled_from(["rows", "data", "odd"]), max_size=2),
    around=st.dictionaries(st.sampled_from(["other", "columns"]), st.lists(VALUES, max_size=5)),
    style=STYLES,
    size=st.integers(2, 300),
)
def test_what_is_left_of_rows_is_known_without_parsing_it(
    rows: Any, path: list[str], around: dict[str, Any], style: dict[str, Any], size: int
) -> None:
    value: Any = rows
    for key in path:
        value = {**around, key: value}
    document = read_document(json.dumps(value, **style), value)
    cut = document.cut(no_longer_than(size), max_rows=5)
    known = document.value_of(cut)
    assert known is NO_JSON or known == json.loads(decoded(cut.data))


def test_what_is_left_of_rows_in_an_envelope_is_known() -> None:
    value: dict[str, Any] = {"total": 3, "rows": [{"id": number} for number in range(3)]}
    document = read_document(json.dumps(value), value)
    assert document.value_of(document.cut(lambda _data: True, max_rows=2)) == {**value, "rows": value["rows"][:2]}


@given(st.text(st.characters(exclude_categories=()), max_size=300), st.integers(0, 200))
def test_a_text_is_cut_to_a_beginning_of_itself(text: str, limit: int) -> None:
    cut = read_document(text).cut(no_longer_than(limit))
    assert len(cut.data) <= limit
    if not read_document(text).is_json:
        assert text.startswith(decoded(cut.data)) or "|" in text or "," in text


@given(
    st.dictionaries(
        st.text(max_size=4), st.text(st.characters(exclude_categories=()), max_size=400), min_size=1, max_size=3
    ),
    STYLES,
    st.integers(30, 300),
)
def test_a_long_string_inside_json_is_cut_between_characters(value: Any, style: dict[str, Any], limit: int) -> None:
    cut = read_document(json.dumps(value, **style)).cut(no_longer_than(limit))
    kept = json.loads(cut.data.decode("utf-8", "surrogatepass"))
    assert all(value[key].startswith(kept[key]) for key in kept)


def test_lines_are_kept_whole() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    cut = read_document(text).cut(no_longer_than(50))
    assert decoded(cut.data) == "".join(f"line {number}\n" for number in range(7))
    assert (cut.items, cut.shown_until) == (7, len(cut.data))


def test_a_csv_record_with_a_line_end_in_it_is_kept_whole() -> None:
    text = 'id,note\n1,"two\nlines"\n2,b\n3,c\n'
    document = read_document(text)
    assert (document.row_count, document.column_count) == (3, 2)
    assert decoded(document.cut(lambda _data: True, max_rows=1).data) == 'id,note\n1,"two\nlines"\n'


def test_a_markdown_table_keeps_what_stands_around_it() -> None:
    text = "People\n\n| id |  n |\n|----|----|\n| 1 | a |\n| 2 | b |\n\nEnd.\n"
    cut = read_document(text).cut(lambda _data: True, max_rows=1)
    assert decoded(cut.data) == "People\n\n| id |  n |\n|----|----|\n| 1 | a |\n\nEnd.\n"


def test_json_lines_are_rows() -> None:
    text = '{"a": "x\\"y"}\n\n{"a": 2}\n{"a": 3}\n'
    assert decoded(read_document(text).cut(lambda _data: True, max_rows=1).data) == '{"a": "x\\"y"}\n'


def test_the_bulk_is_found_through_envelopes() -> None:
    data = json.dumps({"ok": True, "response": {"page": {"entries": ["x" * 50] * 20}}}).encode()
    assert [layout.count for layout in trunk(data)] == [20, 1, 1, 2]


def test_numbers_and_escapes_come_through_as_they_were_written() -> None:
    text = '[{"a": 1.0}, {"a": 1e400}, {"a": 123456789012345678901234567890}, {"a": "\\u00e9"}]'
    layout = json_rows(text.encode(), ())
    assert layout is not None
    assert layout.kept(3) == b'[{"a": 1.0}, {"a": 1e400}, {"a": 123456789012345678901234567890}]'


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1])
def test_an_escape_across_two_chunks_is_one_escape(size: int) -> None:
    text = json.dumps(["x" * (size - 3) + '\\"],', 1])
    items = items_of(text.encode(), 0)
    assert items is not None
    assert len(items.starts) == 2
