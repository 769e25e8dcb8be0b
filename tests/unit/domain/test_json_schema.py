"""Reading a JSON Schema from any source: malformed parts are ignored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.json_schema import listed, named, optional_in, properties_of, reference_of, required_of

plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
anything = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=5), plain, max_size=3)
keywords = st.sampled_from(["properties", "required", "$ref", "allOf", "$defs", "type"])


def test_a_plain_schema_is_read_as_it_is() -> None:
    schema = {"properties": {"b": True, "a": {"type": "string"}}, "required": ["a", "b"], "$ref": "#/$defs/x"}
    assert list(properties_of(schema).items()) == [("b", True), ("a", {"type": "string"})]
    assert required_of(schema) == ["a", "b"]
    assert reference_of(schema) == "#/$defs/x"
    assert (named({"$defs": {"x": {}}}, "$defs"), listed({"allOf": [{}]}, "allOf")) == ({"x": {}}, [{}])


@pytest.mark.parametrize("odd", [None, True, 7, "a", ["a"], {"a": 1}, float("nan")])
def test_malformed_parts_are_ignored(odd: Any) -> None:
    assert properties_of({"properties": odd}) == (odd if isinstance(odd, dict) else {})
    assert required_of({"required": odd}) == (odd if isinstance(odd, list) else [])
    assert reference_of({"$ref": odd}) == (odd if isinstance(odd, str) else None)
    assert required_of({"required": ["a", 1, None, ["b"], "c"]}) == ["a", "c"]


@given(st.dictionaries(keywords, anything))
def test_no_schema_is_too_odd_to_be_read(schema: dict[str, Any]) -> None:
    assert isinstance(properties_of(schema), dict)
    assert all(isinstance(name, str) for name in required_of(schema))
    assert isinstance(reference_of(schema), str | None)


def test_reading_leaves_a_schema_as_it_is_and_an_empty_one_shares_nothing() -> None:
    first = properties_of({})
    first["a"] = 1
    assert properties_of({}) == {}


def test_what_an_object_may_have_and_need_not_is_optional() -> None:
    schema = {"properties": {"a": True, "b": True, "c": True}, "required": ["a"]}
    assert optional_in(schema, ["c", "a", "unknown", "b"]) == ["c", "b"]
    assert optional_in(schema, ["c", "b"], most=1) == ["c"]
