"""What is known about clients, and that the page about them agrees."""

from __future__ import annotations

import pytest

from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.serving.known_clients import KNOWN_CLIENTS, UNKNOWN, ClientHabits, dialect_for, habits_of
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


def test_the_page_about_clients_names_every_known_one_as_it_is() -> None:
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if line.startswith("| `")]
    said: dict[str, ClientHabits] = {}
    for row in rows:
        names, dialect, titles, asks, _ = (cell.strip() for cell in row.strip("|").split("|"))
        habits = ClientHabits(dialect != "never", titles == "kept", asks == "yes")
        said |= {name.strip(" `"): habits for name in names.split(",")}
    assert said == KNOWN_CLIENTS
