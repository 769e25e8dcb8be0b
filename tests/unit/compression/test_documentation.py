"""A schema with less documentation accepts the same values, and notes found only in the description are not lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.descriptions import Level, ShortDescription
from mcp_optimizer.compression.documentation import shorten
from tests.unit.compression.cases import admits, any_schema, tool_with, valid_schemas, values

TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "properties": {
        "card_id": {**TEXT, "description": "The ID of the card."},
        "lane": {**TEXT, "description": "Where it goes. Leave it out to keep the lane.", "examples": ["Doing"]},
        "description": {**TEXT, "description": "What is written on it. In Markdown.", "default": "none"},
        "kind": {"enum": ["a", "b"], "title": "Kind", "description": 5},
        "any": True,
    },
    "required": ["card_id"],
}


def shortened(level: Level, schema: dict[str, Any] = SCHEMA, description: str | None = "Moves it. Well.") -> Any:
    return shorten(tool_with(schema, description), level, ShortDescription("Moves cards", True))


def test_in_full_nothing_changes() -> None:
    tool = tool_with(SCHEMA)
    assert shorten(tool, Level.FULL) is tool


def test_in_sentences_each_note_keeps_its_first_and_those_that_restate_go() -> None:
    tool = shortened(Level.SENTENCE)
    assert tool.description == "Moves it."
    properties = tool.input_schema["properties"]
    assert properties["lane"] == {**TEXT, "description": "Where it goes.", "examples": ["Doing"]}
    assert properties["card_id"] == TEXT
    assert properties["description"]["description"] == "What is written on it."
    assert properties["kind"] == {"enum": ["a", "b"], "title": "Kind", "description": 5}
    assert properties["any"] is True


def test_notes_that_stand_only_in_the_description_are_lifted_before_it_is_cut() -> None:
    tool = shortened(Level.SENTENCE, {"properties": {"a": TEXT}}, "Moves it.\n\nArgs:\n    a: Where to look. Always.")
    assert tool.description == "Moves it."
    assert tool.input_schema["properties"]["a"]["description"] == "Where to look."


def test_in_words_no_note_is_left_but_names_types_enums_and_defaults_are() -> None:
    tool = shortened(Level.WORDS)
    assert tool.description == "Moves cards"
    assert tool.input_schema["properties"] == {
        "card_id": TEXT,
        "lane": TEXT,
        "description": {**TEXT, "default": "none"},
        "kind": {"enum": ["a", "b"]},
        "any": True,
    }
    assert tool.input_schema["required"] == ["card_id"]


def test_a_tool_without_a_description_gets_none() -> None:
    for level in (Level.SENTENCE, Level.WORDS):
        assert shorten(tool_with(SCHEMA, None), level).description is None


@given(valid_schemas(), st.lists(values, min_size=2, max_size=4))
def test_a_shorter_documentation_admits_the_same(schema: dict[str, Any], some: list[Any]) -> None:
    for level in Level:
        brief = shortened(level, schema).input_schema
        for value in some:
            assert admits(brief, value) == admits(schema, value)


@given(any_schema)
def test_no_junk_makes_it_fail(junk: dict[str, Any]) -> None:
    for level in Level:
        assert isinstance(shortened(level, junk).input_schema, dict)
