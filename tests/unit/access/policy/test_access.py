"""What a key or token permits comes first, then the rules; and a refusal says what would help."""

from __future__ import annotations

import pytest

from mcp_optimizer.access.policy.policy import Policy, RuleBook, call_refusal
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Effect, Principal, Risk, Rule

READER = Principal("k", "key:reader", servers=frozenset({"git"}), risk=Risk.READ)


def test_a_rule_cannot_allow_what_the_key_does_not() -> None:
    policy = Policy(RuleBook([Rule(Effect.ALLOW)]))
    assert policy.decide(READER, "mail", "get_mail", None).because == "the caller's servers"
    assert policy.decide(READER, "git", "delete_tag", None).because == "the caller may only read"
    assert policy.decide(READER, "git", "get_tag", None).effect is Effect.ALLOW


def test_a_key_for_writing_does_not_delete() -> None:
    writer = Principal("k", "key:writer", risk=Risk.WRITE)
    assert Policy().decide(writer, "git", "create_tag", None).effect is Effect.ALLOW
    assert Policy().decide(writer, "git", "delete_tag", None).because == "the caller may only read and write"


def test_a_key_for_no_server_may_call_nothing() -> None:
    nobody = Principal("k", "key:nobody", servers=frozenset())
    assert Policy().decide(nobody, "git", "get_tag", None).is_denied
    assert not Policy().decide_server(nobody, "git")


def test_an_override_changes_what_a_key_may_call() -> None:
    policy = Policy(overrides={"git__delete_draft": Risk.READ})
    assert policy.decide(READER, "git", "delete_draft", None).effect is Effect.ALLOW
    assert policy.decide(READER, "git", "delete_draft" + "x" * 1_000, None).is_denied


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (Rule(Effect.DENY, server="git"), False),
        (Rule(Effect.ASK, server="git"), False),
        (Rule(Effect.DENY, server="git", risk=Risk.READ), False),
        (Rule(Effect.DENY, server="git", risk=Risk.WRITE), True),
        (Rule(Effect.DENY, server="git", tool="get_*"), True),
        (Rule(Effect.DENY, server="git", caller="corp:*"), True),
    ],
)
def test_resources_and_prompts_follow_rules_about_whole_servers(rule: Rule, allowed: bool) -> None:
    assert Policy(RuleBook([rule])).decide_server(READER, "git") is allowed


@pytest.mark.parametrize(
    ("principal", "rules", "is_open"),
    [
        (LOCAL_PRINCIPAL, [], True),
        (LOCAL_PRINCIPAL, [Rule(Effect.ALLOW, tool="x")], True),
        (LOCAL_PRINCIPAL, [Rule(Effect.DENY, caller="key:*")], True),
        (LOCAL_PRINCIPAL, [Rule(Effect.ASK, tool="never")], False),
        (Principal("k", "key:k", servers=frozenset({"git"})), [], False),
        (Principal("k", "key:k", risk=Risk.WRITE), [], False),
    ],
)
def test_a_policy_is_open_where_nothing_can_be_refused(principal: Principal, rules: list[Rule], is_open: bool) -> None:
    assert Policy(RuleBook(rules)).is_open_for(principal) is is_open


@pytest.mark.parametrize(
    ("principal", "server", "tool", "said"),
    [
        (READER, "mail", "get_mail", "the caller's servers do not include 'mail'. Use a tool of another server"),
        (READER, "git", "delete_tag", "the caller may only read, and this tool counts as destructive (by its name)."),
        (LOCAL_PRINCIPAL, "git", "delete_tag", "rule 1 of the settings denies it. Tags are history. The operator"),
        (
            LOCAL_PRINCIPAL,
            "git",
            "push",
            "rule 2 of the settings needs a person's agreement, and no person agreed. Tell",
        ),
    ],
)
def test_a_refusal_says_why_and_what_would_help(principal: Principal, server: str, tool: str, said: str) -> None:
    policy = Policy(RuleBook([Rule(Effect.DENY, tool="delete_*", reason="Tags are history"), Rule(Effect.ASK)]))
    error = call_refusal(policy.decide(principal, server, tool, None), server, tool)
    assert f"'{tool}' of '{server}' may not be called: {said}" in str(error)


def test_a_refusal_of_a_huge_name_stays_short() -> None:
    policy = Policy(RuleBook([Rule(Effect.DENY)]))
    name = "x" * 100_000
    assert len(str(call_refusal(policy.decide(READER, "git", name, {"readOnlyHint": True}), "git", name))) < 500
