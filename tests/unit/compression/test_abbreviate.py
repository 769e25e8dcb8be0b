"""An abbreviated definition is as small as required, and states how much is missing wherever something is."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.compression.brief import abbreviated
from mcp_optimizer.compression.signature import Notes, signature
from mcp_optimizer.domain.tools import McpTool

VALUES = [f"v{at}" for at in range(1_000)]


def tool(**schema: Any) -> McpTool:
    return McpTool(name="t", description="Do it.", inputSchema={"type": "object", **schema})


@pytest.mark.parametrize("most", [500, 1_000, 3_000, 10_000])
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"enum": VALUES}}},
        {"properties": {name: {"type": "string", "description": "Words. " * 20} for name in VALUES}},
        {"properties": {name: {} for name in VALUES}, "required": VALUES},
        {"required": VALUES},
        {"anyOf": [{"required": [name]} for name in VALUES]},
        {"properties": {"a": {"type": "string", "description": "word " * 5_000}}},
        {"properties": {"x" * 20_000: {}}},
        {"$defs": {name: {"type": "object"} for name in VALUES}},
    ],
    ids=["enum", "properties", "required", "undeclared", "branches", "words", "a name", "definitions"],
)
def test_it_is_no_larger_than_asked_for_and_says_what_is_missing(schema: dict[str, Any], most: int) -> None:
    short = abbreviated(tool(**schema), most)
    text = short.model_dump_json()
    assert len(text) <= most
    assert "…" in text
    if "$defs" not in schema:
        assert "…" in signature(short, Notes.NONE) or "word" in text


def test_what_must_be_given_is_shown_before_what_may_be() -> None:
    properties: dict[str, Any] = {name: {"type": "string"} for name in VALUES}
    short = abbreviated(tool(properties=properties, required=["v998", "v999"]), 2_000)
    shown = list(short.input_schema["properties"])
    assert shown[:2] == ["v998", "v999"]
    assert short.input_schema["required"] == ["v998", "v999"]
    assert short.input_schema["properties"]["…"] == {"const": f"… {1_000 - len(shown) + 1:,} more"}


def test_what_cannot_be_a_name_is_not_required() -> None:
    properties: dict[str, Any] = {name: {"type": "string"} for name in VALUES}
    short = abbreviated(tool(properties=properties, required=[["v1"], {"v2": 1}, "v999", None]), 2_000)
    assert short.input_schema["required"] == ["v999"]


def test_values_come_first_and_then_how_many_more() -> None:
    short = abbreviated(tool(properties={"a": {"enum": VALUES}}), 500)
    *values, more = short.input_schema["properties"]["a"]["enum"]
    assert values == VALUES[: len(values)]
    assert more == f"… {1_000 - len(values)} more"


def test_what_fits_is_left_as_it_is() -> None:
    small = McpTool.model_validate(
        {"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": None}, "futureField": [None]}
    )
    assert abbreviated(small, 1_000) == small
