"""A tool in less than its signature: nothing required is missing, and what is left out is counted."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.compression.brief import asked_for, brief, call_of, folded, with_what_it_asks_for
from mcp_optimizer.compression.signature import signature
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.words import terms


def tool(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> McpTool:
    schema = {"type": "object", "properties": properties, "required": required or [], **more}
    return McpTool(name="list_cards", description="List the cards of a board. More about it.", inputSchema=schema)


NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def test_what_must_be_given_is_shown_and_the_rest_is_counted() -> None:
    shown = brief(tool({"board": NUMBER, "owner": TEXT, "page": NUMBER}, ["board"]), [])
    assert shown == "(board: int, +2 optional) List the cards of a board."


def test_an_optional_parameter_that_the_request_speaks_of_is_shown() -> None:
    shown = brief(tool({"owner_id": NUMBER, "page": NUMBER}), ["owner"])
    assert shown == "(owner_id?: int, +1 optional) List the cards of a board."


def test_a_word_of_the_tools_own_name_does_not_count_as_spoken_of() -> None:
    assert brief(tool({"card_ids": NUMBER}), ["card"]) == "(+1 optional) List the cards of a board."


def test_what_is_required_but_not_described_is_shown_all_the_same() -> None:
    assert (brief(tool({}, ["board"]), []) or "").startswith("(board: any)")


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"enum": ["open", "closed"]}, "'open'|'closed'"),
        ({"type": "string", "enum": [f"value {number}" for number in range(99)]}, "str"),
        ({"type": "array", "items": {"type": "string"}}, "str[]"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str"),
        ({"type": ["integer", "null"]}, "int"),
        ({"type": "string", "format": "date"}, "str date"),
        ({"$ref": "#/$defs/point"}, "{x: int}"),
        ({"type": "array", "items": {"$ref": "#/$defs/point"}}, "{x: int}[]"),
        ({"type": "object", "properties": {"a": TEXT}}, "obj"),
        ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]}, "{a: str, ...}"),
        ({"$ref": "#/$defs/loop"}, "any"),
        ({"$ref": "#/nowhere"}, "any"),
        (True, "any"),
        ("nonsense", "any"),
    ],
)
def test_a_type_is_a_few_words(schema: Any, shown: str) -> None:
    shared = {
        "point": {"type": "object", "properties": {"x": NUMBER}, "required": ["x"]},
        "loop": {"$ref": "#/$defs/loop"},
    }
    made = brief(tool({"it": schema}, ["it"], **{"$defs": shared}), [])
    assert made == f"(it: {shown}) List the cards of a board."


@pytest.mark.parametrize("key", ["allOf", "anyOf", "$ref"])
def test_a_schema_of_schemas_has_no_brief_form(key: str) -> None:
    assert brief(tool({}, [], **{key: []}), []) is None


def test_what_requires_very_much_has_no_brief_form() -> None:
    assert brief(tool({}, [f"p{number}" for number in range(10_000)]), []) is None


def test_the_parameters_of_a_call_are_named_if_they_are_few() -> None:
    assert call_of(tool({"board": NUMBER}, ["board"])) == "(board)"
    assert call_of(tool({"board": NUMBER, "page": NUMBER}, ["board"])) == "(board, …)"
    assert call_of(tool({"page": NUMBER})) == "(…)"
    assert call_of(tool({})) == "()"
    assert call_of(tool({}, [f"p{number}" for number in range(9)])) == "(…)"


def test_a_call_shows_a_few_useful_optional_parameters_and_the_values_that_they_can_have() -> None:
    listing = tool({"board": NUMBER, "sort_by": {"enum": ["due", "created"]}, "page": NUMBER, "owner": TEXT}, ["board"])
    assert call_of(listing, ["sort_by"]) == "(board, sort_by?: 'due'|'created', …)"
    assert call_of(listing, ["owner", "page", "sort_by"]) == "(board, owner?, page?, sort_by?: 'due'|'created')"
    assert call_of(listing, ["board", "unknown"]) == "(board, …)"
    hostile = tool({"x" * 500: TEXT, "y": {"enum": ["long" * 100, "z"]}})
    assert call_of(hostile, ["x" * 500, "y"]) == "(y?, …)"


@pytest.mark.parametrize(
    ("request_", "needed"),
    [("the oldest cards", ["sort_by", "order"]), ("cards since May", ["created_after"]), ("cards of anna", [])],
)
def test_words_of_a_request_ask_for_parameters_with_other_names(request_: str, needed: list[str]) -> None:
    listing = tool({"sort_by": TEXT, "created_after": TEXT, "order": TEXT, "board": NUMBER}, ["board"])
    assert asked_for(listing, with_what_it_asks_for(terms(request_))) == needed


def test_a_folded_signature_names_its_optional_parameters_and_keeps_the_others() -> None:
    many = {f"filter_{number}": {**TEXT, "description": f"Cards of kind {number}."} for number in range(20)}
    owner = {"owner": {**TEXT, "description": "Whose cards to list."}}
    board = {"board": {**NUMBER, "description": "Where to look, as list_boards returns it."}}
    made = tool({**many, **owner, **board}, ["board"])
    lines = folded(signature(made), made, ["owner"]).split("\n")
    assert lines[1:3] == [
        "board: int - Where to look, as list_boards returns it",
        "owner?: str - Whose cards to list",
    ]
    assert lines[3].startswith("+20 optional: filter_0, filter_1")
    assert lines[3].endswith("filter_11, …")
    assert len(lines) == 4


def test_a_folded_signature_keeps_optional_parameters_with_rules_while_there_is_room() -> None:
    plain = {"label": {**TEXT, "description": "A word on the card."}}
    ruled = {f"date_{number}": {**TEXT, "description": "Must be a date of this year."} for number in range(100)}
    telling = {"page": {**NUMBER, "description": "Counted in seconds."}}
    made = tool({**telling, **plain, **ruled})
    text = folded(signature(made), made, [])
    assert "date_0?: str - Must be a date of this year" in text
    assert "label?" not in text
    assert "date_99?" not in text
    # The weightiest rules come first.
    assert "page?" not in text
    few = tool({**telling, **plain})
    assert "page?: int - Counted in seconds" in folded(signature(few), few, [])


def test_a_folded_signature_keeps_the_types_it_still_uses_and_no_others() -> None:
    point = {"type": "object", "properties": {"x": NUMBER, "y": {**NUMBER, "description": "Downwards."}}}
    made = tool(
        {
            "start": {"$ref": "#/$defs/Point"},
            "end": {"$ref": "#/$defs/Point"},
            "note": {**TEXT, "description": "Any text that is worth a note."},
        },
        ["start", "end"],
        **{"$defs": {"Point": point}},
    )
    whole = signature(made)
    assert "Point = " in whole
    assert "Point = " in folded(whole, made, [])
    assert "+1 optional: note" in folded(whole, made, [])
    optional = made.model_copy(update={"input_schema": {**made.input_schema, "required": ["note"]}})
    assert "Point = " not in folded(signature(optional), optional, [])


def test_a_signature_without_optional_parameters_is_not_changed() -> None:
    made = tool({"board": NUMBER}, ["board"])
    assert folded(signature(made), made, []) == signature(made)
