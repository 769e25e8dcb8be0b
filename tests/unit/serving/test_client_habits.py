"""What a client is sent because of its habits, and that every client can read our own tools."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mcp_optimizer.compression.compress import Dialect, compress
from mcp_optimizer.config.known_clients.habits import HABITS
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits
from mcp_optimizer.domain.own_tools import own_tools
from mcp_optimizer.serving.own_tools import conversation_of, dialect_for
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import mcp_tool


def test_any_other_client_gets_what_the_settings_say() -> None:
    assert [dialect_for(UNKNOWN, dialect) for dialect in Dialect] == list(Dialect)
    assert dialect_for(ClientHabits(reads_references=False), Dialect.REFERENCES) is Dialect.INLINED


def test_a_conversation_is_one_only_among_those_of_its_own_connection() -> None:
    habits, said = HABITS["codex"], {"_meta": {"threadId": "one"}}
    ours, theirs = Caller("codex", "http:1", passed_on=said), Caller("codex", "http:2", passed_on=said)
    assert conversation_of(habits, ours) not in ("", conversation_of(habits, theirs))
    assert conversation_of(UNKNOWN, ours) == conversation_of(habits, LOCAL) == ""


@pytest.mark.parametrize("split_calls", [False, True])
def test_our_own_tools_can_be_read_by_every_client_of_the_table(split_calls: bool) -> None:
    for tool in own_tools(split_calls=split_calls, reads_lists=False):
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
