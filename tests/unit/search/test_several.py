"""A request for several actions is told from a request for one that lists several things."""

from __future__ import annotations

import pytest

from mcp_optimizer.search.actions import MOST_PARTS, several


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        ("stage everything; commit; show the log", ["stage everything", "commit", "show the log"]),
        ("average cost of trips; customers of the shop", ["average cost of trips", "customers of the shop"]),
        ("1. list boards\n2. create a card", ["list boards", "create a card"]),
        ("1. list boards 2. create a card", ["list boards", "create a card"]),
        ("- read the file\n- send an email", ["read the file", "send an email"]),
    ],
)
def test_what_whoever_asks_has_separated_is_several(request_: str, parts: list[str]) -> None:
    found = several(request_)
    assert found is not None
    assert found.is_certain
    assert list(found.parts) == parts


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (
            "Stage everything in the git repository and commit it, then show the last three messages",
            ["Stage everything in the git repository", "commit it", "show the last three messages"],
        ),
        ("find the customer, create a card and please send a mail", None),
        ("in the repository: stage all files and commit", ["in the repository: stage all files", "commit"]),
        ("What time is it in Tokyo? Convert 9:00 to Berlin time.", None),
    ],
)
def test_a_new_action_begins_a_new_part(request_: str, parts: list[str] | None) -> None:
    found = several(request_)
    assert found is not None
    assert not found.is_certain
    assert parts is None or list(found.parts) == parts


@pytest.mark.parametrize(
    "request_",
    [
        "compare the price of apples, oranges and pears",
        "create a card with title, description and owner",
        "list issues",
        "salt and pepper",
        "",
        ";;;",
        ", and then ,",
        "read " * 61 + ", write",
        "read " * 201 + "; write",
    ],
)
def test_a_list_of_things_is_one_request(request_: str) -> None:
    assert several(request_) is None


def test_of_very_many_parts_the_first_are_taken_and_the_others_named() -> None:
    found = several(";".join(f"list {letter}" for letter in "abcdefghijklmnopqrs"))
    assert found is not None
    assert len(found.parts) == MOST_PARTS
    assert found.rest == "list q; list r; list s"


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    "text", ["," * 100_000, " and" * 50_000, "\n" * 100_000, " " * 100_000, "a, " * 30_000, "1. " * 30_000]
)
def test_a_hostile_request_is_read_at_once(text: str) -> None:
    several(text)
