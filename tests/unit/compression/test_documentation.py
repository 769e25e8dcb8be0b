"""A tool described in five words: its parameters stay, and so do the rules that its description had."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from mcp_optimizer.compression.short_descriptions import ShortDescription, concise
from tests.unit.compression.cases import any_schema, tool_with

TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "properties": {"card_id": {**TEXT, "description": "The card."}, "any": True},
    "required": ["card_id"],
}
SHORT = ShortDescription("Move a card", is_clear=True)


def described(description: str, schema: dict[str, Any] = SCHEMA) -> Any:
    return concise(tool_with(schema, description), SHORT, description)


def test_the_description_is_five_words_and_the_parameters_stay() -> None:
    tool = described("Moves a card to another column. It is nice to have.")
    assert tool.description == "Move a card"
    assert tool.input_schema == SCHEMA


def test_a_rule_without_which_a_call_goes_wrong_stays_with_the_arguments() -> None:
    tool = described("Moves a card. The move cannot be undone. Refused when the column is full.")
    assert tool.input_schema["description"] == "The move cannot be undone. Refused when the column is full."
    assert tool.input_schema["properties"] == SCHEMA["properties"]
    also = described("Moves a card. The move cannot be undone.", {**SCHEMA, "description": "Its arguments"})
    assert also.input_schema["description"].startswith("Its arguments")
    assert "cannot be undone" in also.input_schema["description"]


def test_a_deprecated_tool_still_says_so() -> None:
    tool = described("Moves a card. Deprecated: use place_card instead.")
    assert "Deprecated: use place_card instead" in tool.input_schema["description"]


def test_without_words_the_description_stays() -> None:
    tool = tool_with(SCHEMA, "Moves it.")
    assert concise(tool, ShortDescription("", is_clear=False), "Moves it.") is tool


@given(any_schema)
def test_no_junk_makes_it_fail(junk: dict[str, Any]) -> None:
    made = described("Moves it. It must be open. Never twice.", junk)
    assert made.description == "Move a card"
    assert isinstance(made.input_schema, dict)
