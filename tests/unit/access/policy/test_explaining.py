"""An explanation says what decided, and what would change it really changes it."""

from __future__ import annotations

import pytest

from mcp_optimizer.access.policy.explaining import explain, imagined, survey, written
from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.domain.caller import Effect, Principal, Risk, Rule

LOCAL = imagined("local", None, Risk.DESTRUCTIVE)


def said(policy: Policy, principal: Principal, tool: str = "delete_tag") -> dict[str, str]:
    return {step.about: step.said for step in explain(policy, principal, "git", tool, None).steps}


def test_without_rules_everything_is_allowed_and_a_rule_would_change_it() -> None:
    explanation = explain(Policy(), LOCAL, "git", "delete_tag", None)
    assert explanation.decision.effect is Effect.ALLOW
    assert explanation.changes == ("a rule with effect = 'deny', server = 'git', tool = 'delete_tag'",)
    assert said(Policy(), LOCAL)["rule"] == "there are none"


def test_the_rule_that_matched_is_named_and_shown() -> None:
    policy = Policy(RuleBook([Rule(Effect.DENY, server="mail"), Rule(Effect.DENY, tool="delete_*")]))
    assert said(policy, LOCAL)["rule"] == ("rule 2 is the first that matches: effect = 'deny', tool = 'delete_*'")
    explanation = explain(policy, LOCAL, "git", "delete_tag", None)
    assert explanation.rule == 2
    assert explanation.changes == ("a rule before rule 2 with effect = 'allow', server = 'git', tool = 'delete_tag'",)
    assert said(policy, LOCAL, "get_tag")["rule"] == "none of 2 matches"


def test_what_a_key_does_not_permit_no_rule_is_asked_about() -> None:
    guest = imagined("key:guest", frozenset({"mail"}), Risk.READ)
    policy = Policy(RuleBook([Rule(Effect.ALLOW)]))
    explanation = explain(policy, guest, "git", "delete_tag", None)
    assert explanation.decision.is_denied
    assert explanation.rule is None
    assert said(policy, guest) == {
        "class": "destructive, by its name",
        "servers": "key:guest may use mail",
        "risk": "key:guest may call tools up to read",
        "rule": "not asked: the caller itself may not do this",
    }
    assert explanation.changes == (
        "a key that includes the server 'git'",
        "a key for destructive tools",
        "tool_risks.'git__delete_tag' = 'read', if the tool does no more than that",
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(Effect.ALLOW), "effect = 'allow'"),
        (
            Rule(Effect.ASK, "git", "x", Risk.READ, "key:*", "Because."),
            "effect = 'ask', server = 'git', tool = 'x', risk = 'read', caller = 'key:*'",
        ),
    ],
)
def test_a_rule_is_written_without_what_it_leaves_out(rule: Rule, text: str) -> None:
    assert written(rule) == text


def test_each_tool_is_counted_once_where_it_is_decided() -> None:
    rules = [Rule(Effect.DENY, tool="delete_*"), Rule(Effect.ASK, "git", caller="key:*"), Rule(Effect.DENY, "git")]
    tools = [("git", "delete_tag", None), ("git", "get_tag", None), ("mail", "get_mail", None), ("mail", "send", None)]
    policy = Policy(RuleBook(rules))
    everybody = survey(policy, LOCAL, tools)
    assert (everybody.tools, dict(everybody.by_rule), everybody.by_limits) == (4, {0: 1, 2: 1, None: 2}, 0)
    guest = survey(policy, imagined("key:guest", frozenset({"git"}), Risk.READ), tools)
    assert (dict(guest.by_rule), guest.by_limits) == ({1: 1}, 3)
    for counted in (everybody, guest):
        assert sum(counted.by_rule.values()) + counted.by_limits == sum(counted.risks.values()) == 4
