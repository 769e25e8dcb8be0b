"""A default that only a note states becomes part of the parameter's type."""

from __future__ import annotations

import pytest

from mcp_optimizer.compression.rules import StatedDefault, lift_default
from mcp_optimizer.compression.signature import signature
from tests.unit.compression.cases import tool_with


@pytest.mark.parametrize(
    ("note", "text", "default"),
    [
        ("Begin. By default the last 90 days.", "Begin.", "last 90 days"),
        ("Begin. Defaults to the last 90 days.", "Begin.", "last 90 days"),
        ("Begin (default: last 90 days)", "Begin", "last 90 days"),
        ("Begin. If omitted, the last 90 days are used.", "Begin.", "last 90 days"),
        ("Begin. If not provided, defaults to now.", "Begin.", "now"),
        ("Begin. When omitted, uses the start of the year.", "Begin.", "start of the year"),
        ("How many (default: 20, max: 500)", "How many (max: 500)", "20"),
        ("How many (max 200, default 10)", "How many (max 200)", "10"),
        ("Branch (optional, defaults to main)", "Branch", "main"),
        ("Bucket size. Defaults to `hour`.", "Bucket size.", "'hour'"),
        ("Wait. Default is 2.5 seconds.", "Wait.", "2.5 seconds"),
        ("Whether to wait, defaults to True", "Whether to wait", "true"),
        ("Customer. Defaults\nto environment configuration.", "Customer.", "environment configuration"),
    ],
)
def test_a_default_is_taken_out_of_the_note(note: str, text: str, default: str) -> None:
    assert lift_default(note, "x?: str") == StatedDefault(text, default)


@pytest.mark.parametrize(
    "note",
    [
        "Default branch name",
        "Default value",
        "By default, it is in UTC.",
        "By default returns all cards.",
        "If a team is set, defaults to its board.",
        "Fields (default: name, size, kind)",
        "A rule. Keys: port (defaults to 80).",
        "Port. If not specified, defaults will be used.",
    ],
)
def test_what_is_more_than_a_value_stays_in_the_note(note: str) -> None:
    assert lift_default(note, "x?: str") == StatedDefault(note)


def test_a_default_that_the_schema_declares_is_dropped() -> None:
    assert lift_default("How many. Defaults to 20.", "limit?: int = 20") == StatedDefault("How many.")
    assert lift_default("Whether to wait (default: off)", "wait?: bool = false") == StatedDefault("Whether to wait")
    assert lift_default("How many. Default: None.", "limit?: int") == StatedDefault("How many.")
    other = "How many. Defaults to 20."
    assert lift_default(other, "limit?: int = 50") == StatedDefault(other)


def test_brackets_in_a_note_on_an_object_are_about_its_keys() -> None:
    note = "Rule with name and port (defaults to 80)"
    assert lift_default(note, "rule: obj") == StatedDefault(note)


def test_a_signature_writes_the_default_after_the_type() -> None:
    date = {"type": "string", "format": "date", "description": "The date from. By default the last 90 days."}
    schema = {"type": "object", "properties": {"date_from": date}}
    assert signature(tool_with(schema, "List cards.")) == "(date_from?: str date = last 90 days) List cards."
