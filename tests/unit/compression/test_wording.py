"""Texts of a schema are cut to what a caller needs; nothing that validates changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.compress import Dialect, SchemaNotes, compress
from mcp_optimizer.compression.groups import expand
from mcp_optimizer.compression.wording import worded
from tests.unit.compression.cases import admits, any_schema, nested, tool_with, valid_schemas, values

TEXT = {"type": "string"}
DAY = {"type": "string", "format": "date"}


def notes(properties: dict[str, Any], description: str | None = "Do it.", name: str = "do_it") -> dict[str, Any]:
    _, schema = worded(name, description, {"type": "object", "properties": properties})
    found: dict[str, Any] = schema["properties"]
    return found


def test_a_note_keeps_its_first_sentence_its_rules_and_its_default() -> None:
    note = "Where the card goes. It is shown there at once. Must be a lane of the same board. Defaults to the top lane."
    assert notes({"lane": {**TEXT, "description": note}})["lane"]["description"] == (
        "Where the card goes. Shown there at once. Must be a lane of the same board. Default: top lane"
    )


def test_what_a_value_is_for_later_is_left_out_and_what_the_schema_declares_is_not_repeated() -> None:
    found = notes(
        {
            "release": {
                **TEXT,
                "description": "When it ships. Cards can be listed by release with list_cards.",
            },
            "kind": {"enum": ["a", "b"], "description": 'How it looks: "a" or "b".'},
            "owner_id": {"type": "integer", "description": "The ID of the user who is responsible."},
            "other": {**TEXT, "description": "Some text. It cannot be listed later with list_cards."},
        }
    )
    assert found["release"]["description"] == "When it ships"
    assert found["kind"] == {"enum": ["a", "b"], "description": "How it looks"}
    assert found["owner_id"]["description"] == "User who is responsible"
    assert "cannot be listed" in found["other"]["description"]


def test_the_form_of_dates_is_explained_once() -> None:
    found = notes({f"day_{n}": {**DAY, "description": f"Day {n}, in ISO 8601 format (YYYY-MM-DD)."} for n in (1, 2)})
    assert found["day_1"]["description"] == "Day 1, in ISO 8601 format (YYYY-MM-DD)"
    assert found["day_2"]["description"] == "Day 2"
    plain = notes({f"day_{n}": {**TEXT, "description": f"Day {n} (YYYY-MM-DD)."} for n in (1, 2)})
    # Nothing else says what form such a text has.
    assert plain["day_2"]["description"] == "Day 2 (YYYY-MM-DD)"


def test_words_that_many_notes_begin_with_are_said_once() -> None:
    filters = {f"by_{n}": {**TEXT, "description": f"Only return cards of colour {n}."} for n in "abcdef"}
    description, schema = worded("list_cards", "Lists cards.", {"type": "object", "properties": filters})
    assert description == 'Lists cards. "…" means "Only return cards of".'
    assert schema["properties"]["by_a"]["description"] == "…colour a"
    few = dict(list(filters.items())[:4])
    assert worded("list_cards", "Lists cards.", {"properties": few})[0] == "Lists cards."
    assert worded("list_cards", None, {"properties": filters})[0] == '"…" means "Only return cards of".'


def test_an_example_stays_where_nothing_else_shows_the_form() -> None:
    shown = notes(
        {
            "order": {**TEXT, "description": "The order.", "examples": ["PO-2026-0117", "PO-1"]},
            "title": {**TEXT, "description": "What it is about.", "examples": ["Fix the invoice"]},
            "day": {**DAY, "example": "2026-03-31"},
            "key": {**TEXT, "description": 'A key, e.g. "AB-1".', "examples": ["AB-2"]},
            "number": {"type": "number", "examples": [3]},
        }
    )
    assert shown["order"]["examples"] == ["PO-2026-0117"]
    assert all("examples" not in shown[name] and "example" not in shown[name] for name in ("title", "day", "key"))
    assert shown["number"] == {"type": "number"}


def test_parts_inside_a_parameter_are_shortened_and_a_property_named_description_is_none() -> None:
    item = {"type": "object", "properties": {"description": {**TEXT, "description": "The description. See the docs."}}}
    part = {"anyOf": [{**TEXT, "description": "A text. It is nice. It is short."}]}
    found = notes({"steps": {"type": "array", "items": item}, "either": part, "any": True})
    assert found["steps"]["items"]["properties"]["description"] == TEXT
    assert found["either"]["anyOf"][0]["description"] == "Text"
    assert found["any"] is True


def test_notes_that_stand_only_in_the_description_are_lifted_before_it_is_cut() -> None:
    said = "Moves it.\n\nArgs:\n    lane: Where to put it. Must exist."
    description, schema = worded("move", said, {"type": "object", "properties": {"lane": TEXT}})
    assert description == "Moves it."
    assert schema["properties"]["lane"]["description"] == "Where to put it. Must exist"


def test_a_pair_of_arrays_to_add_and_to_remove_is_described_once() -> None:
    ids = {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 30}
    pair = {
        f"tag_ids_to_{verb}": {**ids, "description": f"What to {verb} when it is saved."} for verb in ("add", "remove")
    }
    schema = {"type": "object", "properties": {"title": TEXT, **pair}, "additionalProperties": False}
    made = compress(tool_with(schema), len, notes=SchemaNotes.RULES)
    assert made.tool.input_schema["properties"]["tag_ids"] == {
        "type": "object",
        "description": "; ".join(f"{verb}: What to {verb} when it is saved" for verb in ("add", "remove")),
        "additionalProperties": ids,
        "propertyNames": {"enum": ["add", "remove"]},
    }
    given_in_it = {"title": "a", "tag_ids": {"add": [1], "remove": [2]}}
    assert admits(made.tool.input_schema, given_in_it)
    assert not admits(made.tool.input_schema, {"tag_ids": {"other": [1]}})
    assert expand(given_in_it, made.groups) == {"title": "a", "tag_ids_to_add": [1], "tag_ids_to_remove": [2]}
    # A client that reads little JSON Schema gets them apart.
    assert compress(tool_with(schema), len, Dialect.INLINED, notes=SchemaNotes.RULES).groups.groups == ()


@given(valid_schemas(), st.lists(values, min_size=2, max_size=4))
def test_shorter_texts_admit_the_same(schema: dict[str, Any], some: list[Any]) -> None:
    _, shorter = worded("do_it", "Does it. It must be there.", schema)
    for value in some:
        assert admits(shorter, value) == admits(schema, value)


@given(any_schema, st.text(max_size=60))
def test_no_junk_makes_it_fail_and_none_gets_longer(junk: dict[str, Any], description: str) -> None:
    tool = tool_with(junk, description)
    made = compress(tool, len, notes=SchemaNotes.RULES)
    assert made.tokens <= len(tool.model_dump_json())


@pytest.mark.slow
def test_many_and_deep_parameters_take_a_moment() -> None:
    many = {
        f"p{n}": {**DAY, "description": f"Only return {n}, in ISO 8601 format. It must be so. " * 3}
        for n in range(3_000)
    }
    assert len(notes(many)) == 3_000
    deep: Any = nested(400)
    assert worded("do_it", "Does it.", {"type": "object", "properties": {"a": deep}})[1]["properties"]
