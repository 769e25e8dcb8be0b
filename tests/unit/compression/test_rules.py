"""Rules for callers survive shortening, each in its shortest form."""

from __future__ import annotations

import re
import time

import pytest
from benchmarks.tools import dumped_tools
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression import rules, sentences
from mcp_optimizer.compression import rules as defaults
from mcp_optimizer.compression import sentences as shortest
from mcp_optimizer.compression.rules import NoteContext, described, noted, once
from mcp_optimizer.compression.signature import signature
from mcp_optimizer.domain.json_schema import required_of
from tests.conftest import DATA
from tests.unit.compression.cases import tool_with

DUMPS = DATA / "mcp-tools"
PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (sentences, defaults, rules, sentences, shortest)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}


@pytest.mark.parametrize(
    ("description", "shown"),
    [
        ("Move a card. Requires exceeding_reason.", "Move a card. Requires exceeding_reason."),
        (
            "Move a card. Cards are great. Omit to place it at the bottom.",
            "Move a card. Omit to place it at the bottom.",
        ),
        ("Send mail. Note: Please use at most 10 receivers.", "Send mail. Use at most 10 receivers."),
        ("Delete a file. This operation cannot be undone.", "Delete a file. This operation cannot be undone."),
        ("List files. Perfect for exploring projects.", "List files."),
        ("Find users. Returns names and addresses.", "Find users."),
        ("Find users. Returns at most 100 users.", "Find users. Returns at most 100 users."),
        ("Find users.\n\nReturns:\n    The users, which must be sorted.", "Find users."),
        ("Run code.\n\n```\nYou must not read this\n```", "Run code."),
        ("This tool creates a card.", "Creates a card."),
    ],
)
def test_a_description_is_its_first_sentence_and_its_rules(description: str, shown: str) -> None:
    assert described(description, {"card": ""}) == shown


def test_a_search_for_names_is_not_mistaken_for_one_of_contents() -> None:
    description = (
        "Recursively search for files and directories matching a pattern. The patterns should be glob-style patterns "
        "that match paths relative to the working directory. Use pattern like '*.ext' to match files in current "
        "directory, and '**/*.ext' to match files in all subdirectories. Returns full paths to all matching items. "
        "Great for finding files when you don't know their exact location. Only searches within allowed directories."
    )
    shown = described(description, {"path": "", "pattern": ""})
    assert "glob-style patterns that match paths" in shown
    assert "'**/*.ext' to match files in all subdirectories" in shown
    assert shown.endswith("Only searches within allowed directories.")
    assert "Great" not in shown


def test_a_first_sentence_that_only_warns_is_followed_by_what_the_tool_does() -> None:
    shown = described("SECURITY: Results are not trusted.\n\nRender pages as images. More.", {"page": ""})
    assert shown == "SECURITY: Results are not trusted. Render pages as images."
    heading = "Guardrails:\n  1. Only use it when asked.\n\nPurpose:\n  1. Creates a property."
    assert described(heading, {"name": ""}).startswith("Creates a property.")


def test_a_deprecated_tool_names_its_successor() -> None:
    shown = described("IMPORTANT: This tool is deprecated. Please use get_it instead.\n\nGets it. More.", {"id": ""})
    assert shown == "IMPORTANT: This tool is deprecated. Use get_it instead. Gets it."


def test_a_very_long_first_sentence_does_not_lose_its_rule() -> None:
    description = f"Sends {'a very long message, ' * 15}and the receiver must be a member of the team."
    assert described(description, {"to": ""}).endswith("and the receiver must be a member of the team.")


def test_a_rule_that_a_parameter_states_is_not_repeated_in_the_description() -> None:
    note = "The project to search. If omitted, searches all projects."
    assert (
        described("Find users. If project_id is omitted, searches all projects.", {"project_id": note}) == "Find users."
    )


@pytest.mark.parametrize(
    ("note", "shown", "text"),
    [
        ("Where to look. Not a file.", "path: str", "Where to look. Not a file"),
        ("Optional. The kind of card.", "kind?: str", "Kind of card"),
        ("The colour. Must be 'red' or 'blue'.", "colour: 'red'|'blue'", "Colour"),
        ("The colour. Must be 'red' or 'blue'.", "colour: str", "Colour. Must be 'red' or 'blue'"),
        ("How many (1-100).", "limit?: int 1..100", "How many"),
        ("How many. This parameter is ignored when all is set.", "limit?: int", "How many. Ignored when all is set"),
        ("Zones (e.g., 'Europe/Rome', 'Asia/Tokyo').", "zone: str", "Zones (e.g. 'Europe/Rome')"),
        ("Times (e.g., '24h', '2024-01-01').", "time: str", "Times (e.g. '24h', '2024-01-01')"),
        (
            "Formats:\n- a number\n- 'properties/' and a number",
            "id: str",
            "Formats: a number; 'properties/' and a number",
        ),
        ("分析提示词。默认详细描述图片内容", "prompt?: str", "分析提示词。 默认详细描述图片内容"),
        ("See the [guide](https://example.com/guide). Only for admins.", "x: str", "See the guide. Only for admins"),
    ],
)
def test_a_note_is_its_first_sentence_and_its_rules(note: str, shown: str, text: str) -> None:
    assert noted(note, "value", shown).text == text


def test_the_rules_of_a_note_that_restates_its_name_stay() -> None:
    assert noted("The ID of the card. Must be numeric.", "card_id", "card_id: str").text == "Must be numeric"
    assert noted("The ID of the card to move", "id", "id: str", NoteContext("move_card")).text == ""


def test_of_many_parameters_each_keeps_less() -> None:
    values = ("alpha bravo charlie delta echo", "foxtrot golf hotel india juliet", "kilo lima mike november oscar")
    note = "A value. " + " ".join(f"Never send one of these as it is: {value} or so." for value in values)
    few, many = (len(noted(note, "x", "x: int", NoteContext("", count)).text) for count in (2, 40))
    nested = len(noted(note, "x", "x: int", NoteContext(is_nested=True)).text)
    assert nested < many < few < 220


def test_a_long_rule_is_written_out_once() -> None:
    rule = "Must be written in the format YYYY-MM-DD and in UTC"
    lines = once([f"a: str - Begin. {rule}", f"b: str - End. {rule}", "c: int"], " - ")
    assert lines == [f"a: str - Begin. {rule}", "b: str - End. (As above.)", "c: int"]


def test_lines_about_parameters_outside_a_section_become_notes() -> None:
    schema = {"type": "object", "properties": {"top": {"type": "integer"}, "kind": {"type": "string"}}}
    text = "List files\n- top: How many (max 200, default 10)\n- kind: 'A' or 'B'\n- other: unknown"
    assert signature(tool_with(schema, text)).split("\n")[1:] == [
        "top?: int = 10 - How many (max 200)",
        "kind?: str - 'A' or 'B'",
    ]


@given(st.text(max_size=500), st.text(max_size=20))
def test_any_text_has_rules_of_bounded_length(text: str, name: str) -> None:
    assert len(described(text, {name: text})) < 1_200
    assert len(noted(text, name, f"{name}: str").text) < 480


@pytest.mark.slow
@pytest.mark.parametrize("letter", [".", " ", "(", "'", "`", "*", "a", "_", "1", "\n", "如", "- ", "e.g. ", "default "])
def test_a_hostile_text_is_read_in_no_time(letter: str) -> None:
    text = letter * (1_000_000 // len(letter))
    started = time.process_time()
    described(text, {"a": text})
    noted(text, "a", f"a: {text}")
    assert time.process_time() - started < 2


@pytest.mark.cases_in_check(6)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_expression_reads_a_long_line_in_no_time(pattern: str) -> None:
    for letters in ("a", " ", "(", "'", "_", "\n", "1", "use ", "default ", "if not ", ", a", "e.g. "):
        text = letters * (30_000 // len(letters))
        started = time.process_time()
        PATTERNS[pattern].search(f"(e.g. {text}")
        assert time.process_time() - started < 1, letters


@pytest.mark.slow
@pytest.mark.skipif(not DUMPS.is_dir(), reason="the dumps of real tools are not beside the repository")
def test_no_signature_of_a_real_tool_loses_a_required_parameter() -> None:
    for server, tool in dumped_tools()[::50]:
        text = signature(tool)
        missing = [name for name in required_of(tool.input_schema) if name not in text]
        assert missing == [], (server, tool.name)
