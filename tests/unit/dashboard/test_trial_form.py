"""The form to try a tool: what is entered in it makes valid arguments, and no schema is too much for it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_optimizer.dashboard.trial_form import (
    MOST_CHOICES,
    MOST_FIELDS,
    RAW,
    Control,
    InvalidEntries,
    TrialForm,
    arguments_of,
    entered_for,
    form_for,
)
from mcp_optimizer.dashboard.trial_pages import Trial, trial_section
from tests.unit.dashboard.test_dashboard import assert_harmless

PLAIN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "default": "none"},
        "path": {"type": "string", "description": "Where it is"},
        "depth": {"type": "integer", "default": 3},
        "ratio": {"type": ["number", "null"]},
        "all": {"type": "boolean"},
        "order": {"enum": ["up", "down", 1, None]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "filter": {"type": "object"},
        "mode": {"$ref": "#/$defs/Mode"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    },
    "required": ["path"],
    "$defs": {"Mode": {"type": "string", "enum": ["a", "b"]}},
}


def keys(form: TrialForm) -> dict[str, str]:
    return {field.name: field.key for field in form.fields}


def entered(form: TrialForm, values: Mapping[str, str]) -> dict[str, Any]:
    return arguments_of(form, {keys(form)[name]: text for name, text in values.items()})


def test_each_kind_of_value_has_its_control_and_required_ones_come_first() -> None:
    form = form_for(PLAIN)
    assert form.fields[0].name == "path"
    assert {field.name: field.control for field in form.fields} == {
        "path": Control.TEXT,
        "note": Control.TEXT,
        "depth": Control.INTEGER,
        "ratio": Control.NUMBER,
        "all": Control.BOOLEAN,
        "order": Control.CHOICE,
        "tags": Control.LINES,
        "sizes": Control.LINES,
        "filter": Control.JSON,
        "mode": Control.CHOICE,
        "limit": Control.INTEGER,
    }
    assert {field.name: field.default for field in form.fields if field.default} == {"note": "none", "depth": "3"}


def test_what_is_entered_becomes_values_and_empty_fields_are_left_out() -> None:
    values = {"path": "/a\r\nb", "depth": "7", "ratio": "2.5e1", "all": "false", "order": "null", "note": ""}
    values |= {"tags": "x\r\ny\n\n", "sizes": "1\n2", "filter": '{"a": [1]} // why', "mode": '"b"', "limit": ""}
    assert entered(form_for(PLAIN), values) == {
        "path": "/a\nb",
        "depth": 7,
        "ratio": 25.0,
        "all": False,
        "order": None,
        "tags": ["x", "y"],
        "sizes": [1, 2],
        "filter": {"a": [1]},
        "mode": "b",
    }
    assert entered(form_for(PLAIN), {}) == {"path": ""}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("depth", "3.5", "not a whole number"),
        ("depth", "1e999", "not a whole number"),
        ("depth", "1" * 400, "too long"),
        ("depth", "three", "not a number"),
        ("ratio", "NaN", "not a number"),
        ("ratio", "true", "not a number"),
        ("all", "yes", "neither true nor false"),
        ("order", '"sideways"', "none of the choices"),
        ("sizes", "1\nx", "not a number"),
        ("filter", "{", "not JSON"),
        ("filter", "[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_entry_is_named_with_its_field(name: str, text: str, problem: str) -> None:
    form = form_for(PLAIN)
    with pytest.raises(InvalidEntries) as raised:
        entered(form, {"path": "x", name: text})
    assert list(raised.value.problems) == [keys(form)[name]]
    assert problem in raised.value.problems[keys(form)[name]]


def test_a_required_value_that_is_missing_is_named() -> None:
    form = form_for({"properties": {"n": {"type": "integer"}, "f": {}}, "required": ["n", "f"]})
    with pytest.raises(InvalidEntries) as raised:
        arguments_of(form, {})
    assert set(raised.value.problems) == {"p0", "p1"}


@pytest.mark.parametrize("text", ["[]", "3", "{", '"x"'])
def test_arguments_as_json_must_be_an_object(text: str) -> None:
    with pytest.raises(InvalidEntries):
        arguments_of(TrialForm(is_raw=True), {RAW: text})


LOOP: dict[str, Any] = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
DEEP: Any = {"type": "string"}
for _ in range(5_000):
    DEEP = {"anyOf": [DEEP]}
NESTED: Any = []
for _ in range(200_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        True,
        {"properties": []},
        {"properties": {str(n): {} for n in range(10_000)}},
        {"properties": {"": {}}},
        {"properties": {"x" * 100_000: {}}},
        {"required": ["not there"]},
        {
            "properties": {
                "a": None,
                "b": 3,
                "c": [],
                "d": {"type": 7},
                "e": {"enum": {}},
                "f": {"type": ["string", []]},
            }
        },
        {"properties": {"a": {"enum": list(range(1_000_000))}}},
        {"properties": {"a": {"enum": ["x" * 1_000_000]}, "b": {"enum": [{}, []]}, "c": {"enum": [float("nan")]}}},
        {"properties": {"a": {"type": "string", "pattern": "(a+)+$", "description": "d" * 1_000_000}}},
        {"properties": {"a": {"$ref": "https://elsewhere/x"}, "b": {"$ref": "#/properties/b"}, "c": {"$ref": 1}}},
        {"properties": {"a": {"type": "array", "items": [1, 2]}, "b": {"type": "array", "items": {"enum": []}}}},
        {"properties": {"a": {"default": NESTED}, "b": {"type": "string", "default": "x" * 1_000_000}}},
        {"properties": {"<script>": {"description": "\u202e<b>", "enum": ["\u202e</option>", '"']}}},
        LOOP,
        {"properties": {"a": DEEP}},
    ],
)
def test_no_schema_is_too_much(schema: Any) -> None:
    started = time.monotonic()
    form = form_for(schema)
    page = trial_section(Trial("server", "tool", form))
    assert time.monotonic() - started < 2
    assert len(form.fields) <= MOST_FIELDS
    assert all(len(field.choices) <= MOST_CHOICES for field in form.fields)
    assert len(page) < 100_000
    assert_harmless(page)


TEXTS = st.text(max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KINDS: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "string"}, TEXTS),
    ({"type": "integer"}, st.integers()),
    ({"type": "number"}, NUMBERS),
    ({"type": "boolean"}, st.booleans()),
    ({"enum": ["a", 1, None, "\u202e", "ä"]}, st.sampled_from(["a", 1, None, "\u202e", "ä"])),
    ({"const": "only"}, st.just("only")),
    ({"type": "array", "items": {"type": "string"}}, st.lists(TEXTS, max_size=3)),
    ({"type": "array", "items": {"type": "number"}}, st.lists(NUMBERS, max_size=3)),
    ({"type": "array", "items": {"type": "boolean"}}, st.lists(st.booleans(), max_size=3)),
    ({"type": "array", "items": {"type": "object"}}, st.lists(st.dictionaries(TEXTS, ANYTHING), max_size=2)),
    ({"type": "object"}, st.dictionaries(TEXTS, ANYTHING, max_size=3)),
    ({"type": ["string", "null"]}, st.none() | TEXTS),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, st.none() | st.integers()),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, st.integers() | TEXTS),
    ({"$ref": "#/$defs/Named"}, st.sampled_from(["x", "y"])),
    ({}, ANYTHING),
]
"""Schemas of one argument, and the values that are valid for each."""


@st.composite
def schemas_and_arguments(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    kinds = draw(st.dictionaries(st.text(min_size=1, max_size=8), st.sampled_from(KINDS), max_size=5))
    required = [name for name in kinds if draw(st.booleans())]
    present = [name for name in kinds if name in required or draw(st.booleans())]
    schema = {
        "type": "object",
        "properties": {name: said for name, (said, _) in kinds.items()},
        "required": required,
        "$defs": {"Named": {"enum": ["x", "y"]}},
    }
    others = draw(st.dictionaries(st.text(min_size=9, max_size=12), ANYTHING, max_size=1))
    return schema, {**others, **{name: draw(kinds[name][1]) for name in present}}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(schemas_and_arguments())
def test_what_a_form_shows_of_valid_arguments_makes_the_same_arguments_again(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, arguments = both
    form = form_for(schema)
    shown = entered_for(form, arguments)
    if shown is None:
        # As JSON, everything can be entered.
        form = TrialForm(is_raw=True)
        shown = entered_for(form, arguments)
    assert shown is not None
    # As a browser sends it.
    sent = {key: text.replace("\n", "\r\n") for key, text in shown.items()}
    made = arguments_of(form, sent)
    assert json.dumps(made, sort_keys=True) == json.dumps(arguments, sort_keys=True)
    assert jsonschema_rs.validator_for(schema).is_valid(made)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(schemas_and_arguments(), st.lists(st.text(max_size=10), min_size=5, max_size=5))
def test_whatever_is_entered_makes_arguments_or_says_which_field_is_wrong(
    both: tuple[dict[str, Any], dict[str, Any]], texts: list[str]
) -> None:
    schema, _ = both
    form = form_for(schema)
    sent = {field.key: text for field, text in zip(form.fields, texts, strict=False)}
    made, wrong = _made_or_wrong(form, sent)
    if made is None:
        assert wrong
        assert set(wrong) <= {field.key for field in form.fields}
    else:
        assert set(schema["required"]) <= set(made) <= set(schema["properties"])


def _made_or_wrong(form: TrialForm, sent: Mapping[str, str]) -> tuple[dict[str, Any] | None, Mapping[str, str]]:
    try:
        return arguments_of(form, sent), {}
    except InvalidEntries as wrong:
        return None, wrong.problems
