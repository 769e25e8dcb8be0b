"""What is known about clients, and that the page about them agrees."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mcp_optimizer.compression.compress import Dialect, compress
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.own_tools import own_tools
from mcp_optimizer.serving.known_clients import (
    KNOWN_CLIENTS,
    UNKNOWN,
    ClientHabits,
    Reads,
    ReadsMeta,
    conversation_of,
    dialect_for,
    habits_of,
)
from mcp_optimizer.token_counter import TokenCounter
from tests.conftest import ROOT
from tests.unit.catalogs import mcp_tool


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("claude-code", "claude-code"),
        ("cursor-vscode", "cursor"),
        ("Visual Studio Code - Insiders", "visual studio code"),
        ("gemini-cli-mcp-client", "gemini-cli"),
        ("GitHub-Copilot-Developer", "github-copilot"),
    ],
)
def test_a_client_is_known_by_the_beginning_of_its_name(name: str, known: str) -> None:
    assert habits_of(name) is KNOWN_CLIENTS[known]


def test_any_other_client_gets_what_the_settings_say() -> None:
    assert habits_of("") is habits_of("my own client") is UNKNOWN
    assert [dialect_for(UNKNOWN, dialect) for dialect in Dialect] == list(Dialect)
    assert dialect_for(ClientHabits(reads_references=False), Dialect.REFERENCES) is Dialect.INLINED


def test_a_conversation_is_one_only_among_those_of_its_own_connection() -> None:
    habits, said = KNOWN_CLIENTS["codex"], {"_meta": {"threadId": "one"}}
    ours, theirs = Caller("codex", "http:1", passed_on=said), Caller("codex", "http:2", passed_on=said)
    assert conversation_of(habits, ours) not in ("", conversation_of(habits, theirs))
    assert conversation_of(UNKNOWN, ours) == conversation_of(habits, LOCAL) == ""


@pytest.mark.parametrize("split_calls", [False, True])
def test_our_own_tools_can_be_read_by_every_client_of_the_table(split_calls: bool) -> None:
    for tool in own_tools(split_calls=split_calls):
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool["name"])
        _check_readable(tool["inputSchema"])


def _check_readable(schema: Any) -> None:
    """No references, no lists of types, and a type wherever a value is described."""
    if isinstance(schema, list):
        for part in schema:
            _check_readable(part)
    if not isinstance(schema, dict):
        return
    assert "$ref" not in schema
    assert isinstance(schema["type"], str)
    for part in [*schema.get("properties", {}).values(), schema.get("items"), *schema.get("anyOf", [])]:
        _check_readable(part)


def test_a_client_that_needs_types_gets_them_even_where_references_cannot_be_inlined() -> None:
    shared = {"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": n} for n in range(20)}}
    properties = {f"use{n}": {"$ref": "#/$defs/shared"} for n in range(20)} | {
        "kind": {"type": "string", "enum": ["a"]}
    }
    tool = mcp_tool("large", "", properties)
    tool = tool.model_copy(update={"input_schema": {**tool.input_schema, "$defs": {"shared": shared}}})
    sent = compress(tool, TokenCounter().count_tokens, Dialect.INLINED).tool.input_schema
    assert sent["properties"]["kind"] == {"type": "string", "enum": ["a"]}


READ = {
    **{part.value: (part, ReadsMeta.NEVER) for part in Reads},
    "text; of errors also `_meta`": (Reads.TEXT, ReadsMeta.OF_ERRORS),
    "text and structure, and `_meta`": (Reads.BOTH, ReadsMeta.ALWAYS),
}


def test_the_page_about_clients_names_every_known_one_as_it_is() -> None:
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if line.startswith("| `")]
    said: dict[str, ClientHabits] = {}
    for row in rows:
        names, dialect, titles, asks, reads, conversation, added, on_demand, _ = (
            cell.strip() for cell in row.strip("|").split("|")
        )
        part, meta = READ[reads]
        habits = ClientHabits(
            reads_references=dialect != "never",
            shows_titles=titles == "kept",
            asks_again=asks == "yes",
            reads=part,
            reads_meta=meta,
            loads_on_demand=on_demand == "yes",
            conversation_key="" if conversation == "nothing" else conversation.strip("`"),
            added_arguments=frozenset(key.strip(" `") for key in added.split(",") if key),
        )
        said |= {name.strip(" `"): habits for name in names.split(",")}
    assert said == KNOWN_CLIENTS
