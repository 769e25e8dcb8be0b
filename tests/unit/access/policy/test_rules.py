"""The first rule that matches decides, and the index finds exactly that one."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.access.policy.policy import RuleBook
from mcp_optimizer.domain.caller import Decision, Effect, Principal, Risk, RiskClass, Rule

READING = RiskClass(Risk.READ, "name")
DELETING = RiskClass(Risk.DESTRUCTIVE, "name")
ALICE = Principal("1", "corp:alice")
BOB = Principal("2", "key:bob")


def test_without_a_match_a_call_is_allowed() -> None:
    assert RuleBook().decide(ALICE, "git", "log", READING) == Decision(Effect.ALLOW, "no rule matches", READING)


def test_the_first_rule_that_matches_decides_and_is_named_as_people_count() -> None:
    book = RuleBook(
        [
            Rule(Effect.DENY, server="mail"),
            Rule(Effect.ASK, tool="delete_*", reason="Deleting is for good."),
            Rule(Effect.DENY, tool="delete_*"),
        ]
    )
    expected = Decision(Effect.ASK, "rule 2 of the settings", DELETING, "Deleting is for good.")
    assert book.decide(ALICE, "git", "delete_branch", DELETING) == expected


def test_a_rule_is_about_the_class_and_the_caller_that_it_names() -> None:
    book = RuleBook([Rule(Effect.DENY, risk=Risk.DESTRUCTIVE, caller="key:*")])
    assert book.decide(BOB, "git", "x", DELETING).is_denied
    assert not book.decide(BOB, "git", "x", READING).is_denied
    assert not book.decide(ALICE, "git", "x", DELETING).is_denied


def test_a_memory_of_one_caller_says_nothing_about_another() -> None:
    book = RuleBook([Rule(Effect.DENY, caller="corp:alice")])
    decided = [book.decide(who, "git", "log", READING).is_denied for who in (ALICE, BOB, ALICE, BOB)]
    assert decided == [True, False, True, False]


def test_a_decision_that_is_remembered_names_the_class_of_each_call_and_what_said_so() -> None:
    book = RuleBook([Rule(Effect.ASK, server="git")])
    classes = [READING, RiskClass(Risk.READ, "annotations"), DELETING, READING]
    assert [book.decide(ALICE, "git", "log", risk).risk for risk in classes] == classes


def test_a_tool_is_matched_by_its_own_name_only() -> None:
    book = RuleBook([Rule(Effect.ALLOW, server="git"), Rule(Effect.DENY)])
    assert book.decide(ALICE, "evil", "git", READING).is_denied
    assert book.decide(ALICE, "evil", "git__log", READING).is_denied


DEV = Principal("3", "corp:dev", groups=frozenset({"dev", "staff"}))


def test_a_rule_about_a_group_is_only_about_its_members() -> None:
    book = RuleBook([Rule(Effect.ALLOW, group="dev"), Rule(Effect.DENY, group="sta*"), Rule(Effect.DENY, server="git")])
    staff = Principal("4", "corp:dev", groups=frozenset({"staff"}))
    assert not book.decide(DEV, "git", "log", READING).is_denied
    assert book.decide(staff, "git", "log", READING).because == "rule 2 of the settings"
    assert book.decide(ALICE, "git", "log", READING).because == "rule 3 of the settings"
    assert not book.decide(DEV, "git", "log", READING).is_denied
    assert [book.allows_server(one, "git") for one in (DEV, staff, ALICE)] == [True, False, False]


def test_every_group_is_more_than_no_group() -> None:
    book = RuleBook([Rule(Effect.DENY, group="*")])
    assert book.decide(DEV, "git", "log", READING).is_denied
    assert not book.decide(ALICE, "git", "log", READING).is_denied
    assert book.limits(DEV)
    assert not book.limits(ALICE)


def test_a_group_is_never_a_pattern_and_never_a_caller() -> None:
    book = RuleBook(
        [Rule(Effect.DENY, group="[ab]"), Rule(Effect.DENY, group="admins"), Rule(Effect.DENY, caller="key:ci")]
    )
    for named in ("[ab]", "*", "admin?", "adm*", "admins,", "key:ci", "Admins"):
        caller = Principal("6", "corp:eve", groups=frozenset({named}))
        assert not book.decide(caller, "git", "log", READING).is_denied, named
        assert not book.limits(caller)
    assert not RuleBook([Rule(Effect.DENY, group="corp:eve")]).decide(DEV, "git", "log", READING).is_denied


PATTERNS = st.one_of(
    st.just("*"),
    st.text(alphabet="ab", min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "ab", "aab", "*", "?", "[ab]", "[!b]"]), min_size=1, max_size=6).map("".join),
)
RULES = st.lists(
    st.builds(
        Rule,
        effect=st.sampled_from(Effect),
        server=PATTERNS,
        tool=PATTERNS,
        caller=PATTERNS,
        risk=st.none() | st.sampled_from(Risk),
        group=st.none() | PATTERNS,
    ),
    max_size=30,
)
NAME = st.text(alphabet="abc", max_size=8)


GROUPS = st.frozensets(NAME.filter(bool), max_size=3)


def matches(rule: Rule, server: str, tool: str, caller: Principal, risk: Risk) -> bool:
    pairs = ((server, rule.server), (tool, rule.tool), (caller.name, rule.caller))
    is_in = rule.group is None or any(fnmatchcase(group, rule.group) for group in caller.groups)
    return is_in and rule.risk in (None, risk) and all(fnmatchcase(name, pattern) for name, pattern in pairs)


@given(RULES, NAME, NAME, NAME, GROUPS, st.sampled_from(Risk))
def test_the_index_finds_what_trying_every_rule_finds(
    rules: list[Rule], server: str, tool: str, name: str, groups: frozenset[str], risk: Risk
) -> None:
    caller = Principal("1", name, groups=groups)
    expected = next((n for n, rule in enumerate(rules) if matches(rule, server, tool, caller, risk)), None)
    book = RuleBook(rules)
    for _ in range(2):
        assert book.first_match(caller, server, tool, risk) == expected


@given(RULES, NAME, NAME, GROUPS)
def test_a_server_is_decided_by_rules_about_all_its_tools(
    rules: list[Rule], server: str, name: str, groups: frozenset[str]
) -> None:
    caller = Principal("1", name, groups=groups)
    about = [
        rule
        for rule in rules
        if all(fnmatchcase(name, rule.tool) for name in ("a", "b", "c", "ccc")) and rule.risk in (None, Risk.READ)
    ]
    first = next((rule for rule in about if matches(rule, server, "x", caller, Risk.READ)), None)
    expected = first is None or first.effect is Effect.ALLOW
    assert RuleBook(rules).allows_server(caller, server) is expected


@pytest.mark.parametrize("pattern", ["*", "**", "?*", "*?", "*?*", "**?*"])
@pytest.mark.parametrize("effect", [Effect.DENY, Effect.ASK])
def test_a_rule_that_matches_every_name_is_about_resources_too(pattern: str, effect: Effect) -> None:
    book = RuleBook([Rule(effect, server="git", tool=pattern)])
    assert not book.allows_server(ALICE, "git")
    assert book.allows_server(ALICE, "hub")


@pytest.mark.parametrize("pattern", ["?", "??*", "?*?", "[!x]*", "x*", "[*]", "[?]*"])
def test_a_rule_that_does_not_match_every_name_is_not_about_resources(pattern: str) -> None:
    assert RuleBook([Rule(Effect.DENY, tool=pattern)]).allows_server(ALICE, "git")


@given(RULES, NAME, NAME, NAME, GROUPS, st.sampled_from(Risk))
def test_a_caller_whom_no_rule_limits_is_never_refused(
    rules: list[Rule], server: str, tool: str, caller: str, groups: frozenset[str], risk: Risk
) -> None:
    book, principal = RuleBook(rules), Principal("1", caller, groups=groups)
    if not book.limits(principal):
        assert book.decide(principal, server, tool, RiskClass(risk, "name")).effect is Effect.ALLOW


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("pattern", ["*a*a*a*a*b", "a*", "*b", "*ab*", "?*?*?*b"])
def test_a_hostile_name_is_decided_all_the_same(pattern: str) -> None:
    book = RuleBook([Rule(Effect.DENY, tool=pattern.replace("b", f"b{n}")) for n in range(2_000)])
    assert book.first_match(ALICE, "evil", "a" * 10_000, Risk.READ) == (0 if pattern == "a*" else None)


@pytest.mark.slow
def test_ten_thousand_rules_of_one_server_are_told_apart() -> None:
    book = RuleBook([Rule(Effect.DENY, server="git", tool=f"tool_{n}_*") for n in range(10_000)])
    assert book.first_match(ALICE, "git", "tool_9999_x", Risk.READ) == 9_999
    assert book.first_match(ALICE, "hub", "tool_9999_x", Risk.READ) is None
