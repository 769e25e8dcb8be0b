"""What is known about clients by the names that they send, and that the page about them agrees."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.config.known_clients.habits import HABITS, habits_of
from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits, LoadMarks, Reads, ReadsMeta, ResultRoom
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
    assert habits_of(name) is HABITS[known]


def test_of_any_other_client_nothing_is_known() -> None:
    assert habits_of("") is habits_of("my own client") is habits_of("mcp") is UNKNOWN


MARKS = LoadMarks("anthropic/alwaysLoad", "anthropic/searchHint")
READ = {
    **{part.value: (part, ReadsMeta.NEVER) for part in Reads},
    "text; of errors also `_meta`": (Reads.TEXT, ReadsMeta.OF_ERRORS),
    "text and structure, and `_meta`": (Reads.BOTH, ReadsMeta.ALWAYS),
}


def test_the_page_about_clients_names_every_known_one_as_it_is() -> None:
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if line.startswith("| `")]
    said: dict[str, ClientHabits] = {}
    for row in rows:
        names, dialect, titles, by_tool, asks, reads, conversation, added, on_demand, _ = (
            cell.strip() for cell in row.strip("|").split("|")
        )
        part, meta = READ[reads]
        habits = ClientHabits(
            reads_references=dialect != "never",
            shows_titles=titles == "kept",
            asks_by_tool=by_tool == "yes",
            asks_again=asks == "yes",
            reads=part,
            reads_meta=meta,
            loads_on_demand=on_demand.startswith("yes"),
            load_marks=MARKS if on_demand == "yes, unless a tool asks it not to" else None,
            conversation_key="" if conversation == "nothing" else conversation.strip("`"),
            added_arguments=frozenset(key.strip(" `") for key in added.split(",") if key),
        )
        said |= {name.strip(" `"): habits for name in names.split(",")}
    assert {name: habits._replace(**of_savings(name)) for name, habits in said.items()} == HABITS


def of_savings(client: str) -> dict[str, Any]:
    """What the page says about the savings of a client."""
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if f"| for `{client}` |" in line]
    if not rows:
        return {}
    _, sends, own, room, one = (cell.strip() for cell in rows[0].strip("|").split("|"))
    return {
        "sends_definitions": sends == "yes",
        "own_prompt": 0 if own == "not known" else int(own.replace(",", "")),
        "room": ResultRoom(*(int(tokens.replace(",", "")) for tokens in room.split("/"))),
        "runs_for_a_conversation": one == "yes",
    }
