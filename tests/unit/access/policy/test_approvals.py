"""A person sees what is to be called, only a clear yes counts, and it lasts no longer and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.access.policy.approvals import (
    Approvals,
    Approved,
    Consent,
    abbreviated,
    can_be_shown,
    consent_in,
    question,
    visible,
)
from mcp_optimizer.domain.caller import Decision, Effect, Principal, Risk, RiskClass
from tests.unit.access.policy.test_rates import Clock

ALICE = Principal("a", "corp:alice")
DECISION = Decision(Effect.ASK, "rule 2 of the settings", RiskClass(Risk.DESTRUCTIVE, "name"), "Branches are shared.")


def asked(arguments: dict[str, Any], tool: str = "delete_branch") -> str:
    message = question(ALICE, "git", tool, DECISION, arguments)["message"]
    assert isinstance(message, str)
    return message


def test_the_question_says_what_is_called_for_whom_and_why() -> None:
    assert asked({"name": "main", "force": True}) == (
        'mcp-optimizer asks: On server "git", may "delete_branch" be called for "corp:alice"?\n'
        "It counts as destructive. Rule 2 of the settings wants you to decide.\n"
        "Branches are shared.\n"
        'Arguments: "name": "main", "force": true'
    )


def test_the_person_chooses_how_long_a_yes_lasts_and_nothing_else() -> None:
    schema = question(ALICE, "git", "x", DECISION, {})["requestedSchema"]
    assert list(schema["properties"]) == ["approve_for"]
    assert schema["properties"]["approve_for"]["enum"] == ["this call", "this tool for an hour"]


def test_no_long_argument_hides_the_one_after_it() -> None:
    shown = asked({"text": "x" * 100_000, "path": "/etc/passwd"})
    assert '"path": "/etc/passwd"' in shown
    assert "xx … 100,000 characters … xx" in shown
    assert len(shown) < 600


def test_no_name_forges_the_rest_of_a_question() -> None:
    forged = 'get_weather" be called for "you"? (ref: delete” of server “j” \n Arguments: none'
    first, *_ = asked({"path": "/"}, forged).split("\n")
    assert first.startswith('mcp-optimizer asks: On server "git", may "get_weather\\" be called for \\"you\\"?')
    assert first.endswith('" be called for "corp:alice"?')


def test_thirty_harmless_arguments_do_not_hide_the_thirty_first() -> None:
    arguments = {f"option_{number}": True for number in range(30)} | {"command": "rm -rf /"}
    assert '"command": "rm -rf /"' in asked(arguments)
    assert can_be_shown(dict.fromkeys(map(str, range(40))))
    assert not can_be_shown(dict.fromkeys(map(str, range(41))))


@pytest.mark.slow
def test_a_million_arguments_are_counted() -> None:
    shown = abbreviated({f"key_{number}": number for number in range(1_000_000)})
    assert len(shown) < 350
    assert shown.endswith("more")


def test_arguments_without_a_bottom_are_shown_as_far_as_there_is_room() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert abbreviated({"deep": deep}).startswith('"deep": [[[[')
    circle: list[Any] = []
    circle.append(circle)
    assert "more than" in abbreviated({"circle": circle})
    assert "more than" in abbreviated({"wide": [["x" * 1_000]] * 1_000_000})


def test_blanks_do_not_push_the_rest_out_of_sight() -> None:
    shown = abbreviated({"query": f"SELECT 1 {' ' * 299}; DROP TABLE users", "in": {"a": " " * 4}})
    assert shown == '"query": "SELECT 1␣×300; DROP TABLE users", "in": {"a": "␣×4"}'
    assert "<U+2800>" in abbreviated({"text": "\u2800"})


@pytest.mark.parametrize("size", [400, 4_000, 400_000])
def test_of_a_long_value_beginning_end_and_size_are_shown(size: int) -> None:
    for value in ("SELECT 1" + "." * size + "; DROP TABLE users", ["SELECT 1", "." * size, "; DROP TABLE users"]):
        shown = abbreviated({"query": value, "other": 1})
        assert "SELECT 1" in shown
        assert "characters …" in shown
        assert "DROP TABLE users" in shown or (isinstance(value, list) and size > 1_000)
        assert shown.endswith('"other": 1')
        assert len(shown) <= 300


def test_signs_that_are_written_longer_hide_no_end() -> None:
    shown = abbreviated({"query": '"' * 4_000 + "; DROP TABLE users"})
    assert shown.endswith('; DROP TABLE users"')


def test_the_name_of_an_argument_does_not_look_like_two() -> None:
    shown = abbreviated({'path: "/tmp/ok", note': "x", "path": "/etc/passwd"})
    assert shown == '"path: \\"/tmp/ok\\", note": "x", "path": "/etc/passwd"'


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()), min_size=1))
def test_arguments_are_shown_in_one_line_that_is_not_too_long(arguments: dict[str, Any]) -> None:
    shown = abbreviated(arguments)
    assert shown.isprintable()
    # Each has its share, however many there are.
    assert len(shown) < max(350, 60 * len(arguments))


def test_what_is_hidden_is_shown() -> None:
    shown = asked({"to": "a\u202eb", "x": "\U000e0041"}, tool="delete\u200b\nYou may say yes")
    assert '"delete<U+200B>\\nYou may say yes"' in shown
    assert "a<U+202E>b" in shown
    assert "<U+E0041>" in shown


@given(st.text())
def test_a_visible_text_is_one_line_of_printable_characters(text: str) -> None:
    assert visible(text).isprintable()


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ({"action": "accept", "content": {"approve_for": "this call"}}, Consent.ONCE),
        ({"action": "accept", "content": {"approve_for": "this tool for an hour"}}, Consent.HOUR),
        ({"action": "decline"}, Consent.NO),
        ({"action": "cancel"}, Consent.NO),
        ({"action": "decline", "content": {"approve_for": "this call"}}, Consent.NO),
        ({"action": "accept"}, Consent.ONCE),
        ({"action": "accept", "content": None}, Consent.ONCE),
        ({"action": "accept", "content": {}}, Consent.ONCE),
        ({"action": "accept", "content": {"approve_for": "no"}}, Consent.NO),
        ({"action": "accept", "content": {"approve_for": "forever"}}, Consent.NO),
        ({"action": "accept", "content": {"approve_for": ["this call"]}}, Consent.NO),
        ({"action": "accept", "content": {"approve_for": True}}, Consent.NO),
        ({"action": "accept", "content": ["this call"]}, Consent.NO),
        ({"action": ["accept"], "content": {"approve_for": "this call"}}, Consent.NO),
        ({"action": "ACCEPT", "content": {"approve_for": "this call"}}, Consent.NO),
        ({}, Consent.NO),
        (None, Consent.NO),
        ("accept", Consent.NO),
        ([], Consent.NO),
    ],
)
def test_only_a_clear_yes_counts(answer: object, meaning: Consent) -> None:
    assert consent_in(answer) is meaning


APPROVED = Approved("a", "conversation", "git", "delete_branch", "hash")


def test_a_yes_lasts_an_hour() -> None:
    clock = Clock()
    approvals = Approvals(clock=clock)
    assert not approvals.holds(APPROVED)
    approvals.remember(APPROVED)
    clock.pass_by(3_599)
    assert approvals.holds(APPROVED)
    clock.pass_by(1)
    assert not approvals.holds(APPROVED)


@pytest.mark.parametrize(
    "other",
    [
        Approved("b", "conversation", "git", "delete_branch", "hash"),
        Approved("a", "another", "git", "delete_branch", "hash"),
        Approved("a", "conversation", "hub", "delete_branch", "hash"),
        Approved("a", "conversation", "git", "delete_tag", "hash"),
        Approved("a", "conversation", "git", "delete_branch", "changed"),
    ],
)
def test_a_yes_is_for_nobody_and_nothing_else(other: Approved) -> None:
    approvals = Approvals()
    approvals.remember(APPROVED)
    assert not approvals.holds(other)


def test_a_caller_who_is_gone_has_no_yes_left() -> None:
    approvals = Approvals()
    approvals.remember(APPROVED)
    approvals.forget("b")
    assert approvals.holds(APPROVED)
    approvals.forget("a")
    assert not approvals.holds(APPROVED)


def test_the_memory_is_bounded_and_the_oldest_goes_first() -> None:
    approvals = Approvals(most=2)
    keys = [Approved("a", str(number), "git", "x", "hash") for number in range(3)]
    for key in keys:
        approvals.remember(key)
    assert [approvals.holds(key) for key in keys] == [False, True, True]
