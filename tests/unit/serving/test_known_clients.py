"""What is known about clients, and that the page about them agrees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import LOCAL, Caller, ClientLink
from mcp_optimizer.serving.known_clients import (
    KNOWN_CLIENTS,
    UNKNOWN,
    ClientHabits,
    dialect_for,
    habits_of,
    is_conversation,
)
from tests.conftest import ROOT


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


def test_a_modern_client_over_http_is_no_conversation_because_it_has_no_session() -> None:
    habits = KNOWN_CLIENTS["claude-code"]
    assert is_conversation(habits, LOCAL)
    assert is_conversation(habits, Caller("claude-code", "http:4711"))
    assert not is_conversation(UNKNOWN, LOCAL)
    modern = cast("ClientLink", SimpleNamespace(is_modern=True))
    assert not is_conversation(habits, Caller("claude-code", "http:claude-code", modern))


def test_the_page_about_clients_names_every_known_one_as_it_is() -> None:
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if line.startswith("| `")]
    said: dict[str, ClientHabits] = {}
    for row in rows:
        names, dialect, titles, asks, reads, session, _ = (cell.strip() for cell in row.strip("|").split("|"))
        habits = ClientHabits(
            dialect != "never", titles == "kept", asks == "yes", reads == "structure", session == "yes"
        )
        said |= {name.strip(" `"): habits for name in names.split(",")}
    assert said == KNOWN_CLIENTS
