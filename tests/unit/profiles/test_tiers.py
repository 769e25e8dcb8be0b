"""Which tools of a server are Core, Common and Rare, by pins, use and what their names say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.profiles.tiers import Candidate, Reason, Tier, rank


def of(names: str, server: str = "s") -> list[Candidate]:
    return [Candidate(name, server, name, 100) for name in names.split()]


def core(candidates: list[Candidate]) -> set[str]:
    return {ranked.candidate.name for ranked in rank(candidates) if ranked.tier is Tier.CORE}


def test_a_word_that_all_names_begin_with_says_nothing() -> None:
    names = "jira_get_issue jira_list_issues jira_create_issue jira_update_issue jira_delete_issue jira_add_watcher "
    names += "jira_get_board jira_link_issues jira_export_csv jira_import_csv jira_get_transitions jira_log_work "
    names += "jira_get_user jira_list_versions jira_archive_sprint"
    assert core(of(names)) == {"jira_get_issue", "jira_list_issues", "jira_create_issue"}


def test_a_verb_after_its_thing_counts_and_so_does_camel_case() -> None:
    assert core(of("issue_read issue_write branchDelete repoFork labelApply")) == {"issue_read"}
    assert core(of("getIssue listIssues deleteIssue mergeBranch forkRepo")) == {"listIssues"}


def test_where_names_say_nothing_the_lightest_are_core() -> None:
    odd = [Candidate(name, "s", name, weight) for weight, name in enumerate("zap blip fizz quux plonk".split())]
    assert core(odd) == {"zap"}
    assert core(of("zap")) == {"zap"}


def test_pinned_and_used_tools_are_core_however_many_they_are() -> None:
    used = [Candidate(f"tool_{n}", "s", f"tool_{n}", 100, uses=n) for n in range(10)]
    ranked = rank(used, ["tool_0"])
    assert [entry.candidate.name for entry in ranked][:3] == ["tool_0", "tool_9", "tool_8"]
    assert all(entry.tier is Tier.CORE for entry in ranked)
    assert [entry.reason for entry in ranked][:2] == [Reason.PINNED, Reason.USED]


def test_servers_take_turns() -> None:
    both = [*of("list_a get_a create_a update_a delete_a", "one"), *of("list_b get_b create_b update_b drop_b", "two")]
    assert [entry.candidate.name for entry in rank(both)][:4] == ["list_a", "list_b", "get_a", "get_b"]


@given(st.lists(st.tuples(st.text(max_size=20), st.sampled_from("ab"), st.integers(0, 500)), max_size=40))
def test_every_tool_has_one_place_whatever_its_name(drawn: list[tuple[str, str, int]]) -> None:
    candidates = [Candidate(f"{n}{name}", server, name, tokens) for n, (name, server, tokens) in enumerate(drawn)]
    ranked = rank(candidates)
    assert sorted(entry.candidate.name for entry in ranked) == sorted(candidate.name for candidate in candidates)
    assert ranked == rank(list(reversed(candidates)))
    for server in "ab":
        own = [entry for entry in ranked if entry.candidate.server == server]
        assert sum(entry.tier is Tier.CORE for entry in own) <= -(-len(own) // 5)


@pytest.mark.slow
def test_a_server_of_ten_thousand_tools_is_ranked_in_a_moment() -> None:
    assert len(rank(of(" ".join(f"get_thing_{n}" for n in range(10_000))))) == 10_000
