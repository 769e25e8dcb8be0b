"""Shapes of hostile results and schemas are small and quick, and no value of a result is ever in one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.compression.shape_sources import shape_of_schema, shape_of_value
from mcp_optimizer.compression.shapes import NOTHING, merged, to_text, without_data, written


def nested(levels: int, key: str | None) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if key is None else {key: value, "b": "x"}
    return value


HUGE: dict[str, Callable[[], Any]] = {
    "a million keys": lambda: {f"k{number}": number for number in range(1_000_000)},
    "a million elements": lambda: [{"id": number, "name": "x"} for number in range(1_000_000)],
    "a thousand levels of lists": lambda: nested(1_000, None),
    "a thousand levels of objects": lambda: nested(1_000, "a"),
    "wide everywhere": lambda: (
        [{f"a{m}": [{f"b{n}": n if n % 2 else "x" for n in range(40)}] * 40 if m % 2 else m for m in range(40)}] * 40
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_the_shape_of_a_huge_result_is_found_at_once_and_small(name: str) -> None:
    huge = HUGE[name]()
    shape_of_value(huge)
    started = time.process_time()
    seen = shape_of_value(huge)
    kept = without_data(merged(seen, seen))
    assert time.process_time() - started < 0.02
    assert len(to_text(kept)) < 20_000
    assert len(written(kept)) < 160


def multiplying(keyword: str) -> dict[str, Any]:
    wide = {f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * 100} for at in range(10)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**wide, "d10": {"type": "string"}}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema, "b": {"type": "array", "items": schema}}}
    return schema


SCHEMAS: dict[str, dict[str, Any]] = {
    "anyOf that multiplies": multiplying("anyOf"),
    "allOf that multiplies": multiplying("allOf"),
    "a reference to itself": {"$ref": "#"},
    "references in a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "many properties": {"properties": {f"p{n}": {} for n in range(100_000)}, "required": [f"p{n}" for n in range(9)]},
    "many levels": deep(90),
    "nonsense": {"type": 3, "properties": [1], "items": 7, "anyOf": {"a": 1}, "required": "x", "enum": 3, "$ref": 4},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_shape_of_a_hostile_schema_is_found_quickly_and_small(name: str) -> None:
    started = time.process_time()
    text = written(shape_of_schema(SCHEMAS[name]) or NOTHING)
    assert time.process_time() - started < 2
    assert len(text) < 160


markers = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=12).map(lambda text: f"zq{text}")
fields = st.sampled_from(["id", "name", "swimlane", "ownerUserId", "created_at", "kanban"])
leaves = markers | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists, records, and maps by markers, whose values are all of one kind."""
    lists = st.lists(inner, max_size=4)
    records = st.dictionaries(fields, inner, max_size=5)
    kinds = [markers, st.integers() | st.none(), lists, records, st.dictionaries(markers, markers, max_size=3)]
    maps = [st.dictionaries(markers, kind, min_size=1, max_size=5) for kind in kinds]
    return lists | records | st.one_of(maps)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.recursive(leaves, containers, max_leaves=20), min_size=1, max_size=4), st.integers(1, 3))
def test_no_value_and_no_key_of_a_map_is_ever_in_a_shape(results: list[Any], times: int) -> None:
    seen = NOTHING
    for result in results * times:
        seen = merged(seen, shape_of_value(result))
    kept = without_data(seen)
    assert "zq" not in to_text(kept)
    assert "zq" not in written(kept)
    assert "zq" not in written(seen)


@settings(deadline=None)
@given(st.lists(st.dictionaries(fields, leaves, min_size=1), min_size=1, max_size=5), st.data())
def test_a_key_that_no_two_results_share_is_never_in_a_shape(
    results: list[dict[str, Any]], data: st.DataObject
) -> None:
    seen = NOTHING
    for number, result in enumerate(results):
        own = {f"zq{letter}{'abcde'[number]}": data.draw(leaves) for letter in "xyz"}
        seen = merged(seen, shape_of_value({**result, **own}))
    kept = without_data(seen)
    assert "zq" not in to_text(kept)
    assert "zq" not in written(kept)
