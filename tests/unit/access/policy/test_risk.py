"""The risk class of a tool: the operator's word, else annotations, else the verb, and never better than the name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.access.policy.risk import risk_of
from mcp_optimizer.domain.caller import Risk, RiskClass

READ, WRITE, DESTRUCTIVE = Risk.READ, Risk.WRITE, Risk.DESTRUCTIVE


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("get_issue", READ),
        ("getIssue", READ),
        ("jira_get_issue", READ),
        ("get_deleted_items", READ),
        ("get_data_set", READ),
        ("list_trash", READ),
        ("users_list", READ),
        ("build_status", READ),
        ("create-issue", WRITE),
        ("mailing_list_add", WRITE),
        ("search_and_replace", WRITE),
        ("mark_emails_as_read", WRITE),
        ("run_tests", WRITE),
        ("browser_drag_and_drop", WRITE),
        ("delete_issue", DESTRUCTIVE),
        ("issueDelete", DESTRUCTIVE),
        ("nc_shopping_list_delete_item", DESTRUCTIVE),
        ("find_users_and_delete", DESTRUCTIVE),
        ("remove_member", DESTRUCTIVE),
        ("drop_table", DESTRUCTIVE),
        ("run_command", DESTRUCTIVE),
        ("execute_sql", DESTRUCTIVE),
        # Of another gateway, or anything else that calls what it is told.
        ("call_tool", DESTRUCTIVE),
        ("mcp_execute_tool", DESTRUCTIVE),
        ("useTool", DESTRUCTIVE),
        ("find_tool", READ),
        ("ｄｅｌｅｔｅ_issue", DESTRUCTIVE),
        ("de\u200blete_issue", DESTRUCTIVE),
    ],
)
def test_without_annotations_the_verbs_of_the_name_count(name: str, risk: Risk) -> None:
    assert risk_of("server", name, None, {}) == RiskClass(risk, "name")


@pytest.mark.parametrize("name", ["foo", "", "12345", "東京", "_" * 50])
def test_a_tool_that_says_nothing_counts_as_one_that_writes(name: str) -> None:
    assert risk_of("server", name, None, {}) == RiskClass(WRITE, "default")


@pytest.mark.parametrize(
    ("name", "annotations", "risk", "source"),
    [
        ("foo", {"readOnlyHint": True}, READ, "annotations"),
        ("create_report", {"readOnlyHint": True}, READ, "annotations"),
        ("foo", {"readOnlyHint": True, "destructiveHint": True}, READ, "annotations"),
        ("get_it", {"destructiveHint": True}, DESTRUCTIVE, "annotations"),
        ("get_it", {"readOnlyHint": False, "destructiveHint": False}, WRITE, "annotations"),
        ("get_it", {"readOnlyHint": False}, WRITE, "annotations"),
        ("remove_it", {"readOnlyHint": False}, DESTRUCTIVE, "name"),
        ("get_it", {"destructiveHint": False}, READ, "name"),
        ("foo", {"destructiveHint": False}, WRITE, "annotations"),
        ("remove_label", {"readOnlyHint": False, "destructiveHint": False}, WRITE, "annotations"),
    ],
)
def test_annotations_count_before_the_name(name: str, annotations: object, risk: Risk, source: str) -> None:
    assert risk_of("server", name, annotations, {}) == RiskClass(risk, source)


@pytest.mark.parametrize("name", ["delete_all", "remove_user", "wipeDisk", "get_users_and_delete"])
def test_a_tool_that_deletes_cannot_call_itself_read_only(name: str) -> None:
    assert risk_of("server", name, {"readOnlyHint": True}, {}) == RiskClass(DESTRUCTIVE, "name")


def test_a_tool_that_plainly_deletes_cannot_call_itself_harmless() -> None:
    harmless = {"readOnlyHint": False, "destructiveHint": False}
    assert risk_of("server", "delete_all", harmless, {}) == RiskClass(DESTRUCTIVE, "name")


@pytest.mark.parametrize("value", ["true", 1, [True], {"a": 1}, None, 1.0])
def test_a_hint_of_another_type_counts_as_absent(value: object) -> None:
    annotations = {"readOnlyHint": value, "destructiveHint": value}
    assert risk_of("server", "foo", annotations, {}) == RiskClass(WRITE, "default")


@pytest.mark.parametrize("annotations", [[], "readOnlyHint", 7, None])
def test_annotations_of_another_type_count_as_absent(annotations: object) -> None:
    assert risk_of("server", "foo", annotations, {}) == RiskClass(WRITE, "default")


def test_the_operator_counts_before_everything_and_the_first_pattern_wins() -> None:
    overrides = {"git__delete_*": READ, "delete_*": WRITE, "*": DESTRUCTIVE}
    hints = {"readOnlyHint": True}
    assert risk_of("git", "delete_tag", hints, overrides) == RiskClass(READ, "override")
    assert risk_of("hub", "delete_tag", hints, overrides) == RiskClass(WRITE, "override")
    assert risk_of("hub", "get_tag", hints, overrides) == RiskClass(DESTRUCTIVE, "override")


def test_a_server_cannot_use_a_setting_that_names_another_server() -> None:
    overrides = {"git__*": READ}
    assert risk_of("evil", "git__delete_all", None, overrides) == RiskClass(DESTRUCTIVE, "name")


@given(st.text(max_size=50), st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint"]), st.booleans()))
def test_every_name_has_a_class_and_a_source(name: str, annotations: dict[str, bool]) -> None:
    found = risk_of("server", name, annotations, {})
    assert found.source in {"annotations", "name", "default"}
    assert annotations.get("readOnlyHint") is not True or found.risk in {READ, DESTRUCTIVE}


@pytest.mark.parametrize("annotations", [None, {"readOnlyHint": True}, {"destructiveHint": False}])
def test_a_name_that_is_too_long_to_be_read_is_not_of_a_tool_that_only_reads(annotations: object) -> None:
    for name in ("get_" * 1_000_000, f"get_{'x' * 1_000}_delete"):
        assert risk_of("server", name, annotations, {}) == RiskClass(WRITE, "default")
    assert risk_of("server", f"delete_{'x' * 1_000}", annotations, {}) == RiskClass(DESTRUCTIVE, "name")
    assert risk_of("server", f"get_{'x' * 996}", annotations, {}).risk is READ
