"""Which tools were used, which were not, and the advice that follows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mcp_optimizer.access.audit.trail import SessionLabels
from mcp_optimizer.cli.reports import read_since
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.savings import Assumptions, Prices
from mcp_optimizer.metrics.usage import Usage, make_usage
from mcp_optimizer.metrics.weights import Weight

CATALOG = [
    Weight("git", "create_issue", 900),
    Weight("git", "list_issues", 300),
    Weight("git", "close_issue", 200),
    Weight("mail", "send", 400),
]
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
START = NOW.timestamp()


def event(kind: EventKind, at: float, tool: str = "", **fields: Any) -> Event:
    server = next((weight.server for weight in CATALOG if weight.tool == tool), "")
    fields = {"tokens": 100, "full_tokens": 100, "baseline_tokens": 1_800, "milliseconds": at, **fields}
    return Event(START + at, kind, fields.pop("session", "s"), "claude", server, tool, **fields)


def usage(*events: Event) -> Usage:
    return make_usage(events, CATALOG, Assumptions(own_tokens=346))


def test_what_is_not_known_of_a_client_that_loads_tools_on_demand_is_said_and_not_claimed() -> None:
    calls = [event(EventKind.FIND, 1), event(EventKind.CALL, 2, "create_issue", full_tokens=400)]
    told = make_usage(calls, CATALOG, Assumptions(own_tokens=346, loads_on_demand="claude".__eq__))
    assert told.on_demand_told == "claude: this client loads tools on demand; only results count."
    assert told.verdict.sentence == "Saved 300 tokens (75.0 %) of results."
    other = Event(START, EventKind.CALL, "t", "opencode", "git", "create_issue", 100, 100, 1_800)
    both = make_usage([*calls, other], CATALOG, Assumptions(own_tokens=346, loads_on_demand="claude".__eq__))
    assert both.on_demand == ("claude",)
    assert "against listing all tools" in both.verdict.sentence
    assert usage(*calls).on_demand_told == ""


def test_calls_are_told_by_tool_with_failures_and_times() -> None:
    calls = [event(EventKind.CALL, n, "create_issue") for n in range(1, 10)]
    calls.append(event(EventKind.CALL, 500, "create_issue", outcome=Outcome.TIMEOUT, cached=True))
    (row,) = usage(*calls).called
    assert (row.key, row.activity.times, row.activity.failed) == (("git", "create_issue"), 10, 1)
    assert (row.activity.cached, row.activity.tokens, row.activity.tokens_each) == (1, 1_000, 100)
    assert (row.activity.p50_ms, row.activity.p95_ms) == (6, 500)


def test_what_was_found_and_never_called_is_told_apart() -> None:
    found = event(EventKind.FIND, 1, found=(("git", "create_issue"), ("git", "list_issues")))
    told = usage(found, found, event(EventKind.CALL, 2, "create_issue"))
    assert [(row.tool, row.times, row.called) for row in told.found] == [
        ("create_issue", 2, 1),
        ("list_issues", 2, 0),
    ]
    never = {row.server: (row.tools, row.of, row.tokens, row.names) for row in told.never_called}
    assert never["git"] == (2, 3, 500, ("list_issues", "close_issue"))


def test_advice_names_the_unused_the_failing_and_the_large() -> None:
    calls = [event(EventKind.CALL, n, "create_issue", outcome=Outcome.TIMEOUT) for n in range(5)]
    calls += [event(EventKind.CALL, n, "list_issues", tokens=9_000, full_tokens=9_000) for n in range(5)]
    calls += [event(EventKind.FIND, 4 * 86_400 + n) for n in range(10)]
    told = "\n".join(usage(*calls).advice)
    assert "No tool of `mail` was called in 4 days with 20 searches and calls." in told
    assert "`mcp-optimizer disable mail` saves its definitions: 400 tokens" in told
    assert "`create_issue` of `git` failed 5 of 5 times" in told
    assert "Results of `list_issues` of `git` average 9,000 tokens" in told
    assert "would have saved up to 35,000 tokens. What models see of it: `mcp-optimizer show git/list_issues`" in told
    assert "pinned" not in told


@pytest.mark.parametrize(("days", "searches"), [(0.04, 100), (2.9, 100), (9, 5)])
def test_no_server_is_called_unused_before_days_of_use_have_shown_it(days: float, searches: int) -> None:
    events = [event(EventKind.CALL, 0, "create_issue"), event(EventKind.FIND, days * 86_400)]
    events += [event(EventKind.FIND, n) for n in range(searches)]
    assert "called in" not in "\n".join(usage(*events).advice)


def test_where_listing_all_tools_is_cheaper_than_searching_them_the_advice_says_so() -> None:
    small = [Weight("git", "create_issue", 300)]
    told = make_usage([event(EventKind.FIND, 1, tokens=200)], small, Assumptions(own_tokens=346)).advice
    assert told[0] == (
        "Listing all 1 tool costs 300 tokens, and searching them 546 (our own tools 346, a reply about 200): "
        "register them directly with --profile full, or pass them through with --mode transparent. That saves 246 "
        "tokens and a request in each conversation."
    )
    assert not any("Listing all" in line for line in usage(event(EventKind.FIND, 1)).advice)


def test_many_searches_without_a_call_are_told_as_what_they_cost_and_why() -> None:
    told = usage(*(event(EventKind.FIND, n, tokens=300) for n in range(96))).verdict
    assert not told.is_saving
    assert told.sentence.startswith("Cost ")
    assert told.sentence.endswith(" tokens more than listing all tools would have.")
    assert told.why == (
        "96 searches led to no call: a search costs its reply in every later request, and saves only where a call "
        "follows.",
    )


def test_a_small_catalog_is_why_nothing_was_saved() -> None:
    calls = [event(EventKind.FIND, 1, baseline_tokens=300), event(EventKind.CALL, 2, "send", baseline_tokens=300)]
    told = make_usage(calls, [Weight("mail", "send", 300)], Assumptions(own_tokens=346)).verdict
    assert not told.is_saving
    assert told.why == ("The catalog is small: all its definitions cost 300 tokens, our own tools and one reply 446.",)


def test_what_was_saved_is_said_as_saved_and_nothing_where_nothing_happened() -> None:
    calls = [event(EventKind.FIND, 1), event(EventKind.CALL, 2, "send")]
    assert usage(*calls).verdict.is_saving
    assert usage(*calls).verdict.sentence.startswith("Saved ")
    assert usage().verdict.sentence == "Nothing to compare yet: no conversation has searched or called."


def test_two_processes_are_two_conversations() -> None:
    first, second = SessionLabels().of(LOCAL)[0], SessionLabels().of(LOCAL)[0]
    told = usage(*(event(EventKind.CALL, n, "send", session=of) for n, of in enumerate((first, second, first))))
    assert told.savings.savings.sessions == 2


def test_advice_pins_what_most_conversations_use() -> None:
    calls = [event(EventKind.CALL, n, "create_issue", session=str(n)) for n in range(6)]
    (pinned,) = (line for line in usage(*calls).advice if "--pinned-tools create_issue" in line)
    assert "That saves a search, a request of its own whose reply is about" in pinned


def test_before_anything_was_called_only_weights_are_judged() -> None:
    told = make_usage([], [Weight("a", f"t{n}", 10) for n in range(30)] + [Weight("b", "x", 900)], Assumptions())
    assert told.events == 0
    assert told.since is None
    assert told.advice[0].startswith("`b` alone has 75 %")
    assert make_usage([], [], Assumptions()).advice == ()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (20, "The heaviest of 20 tools, `t19` of `a`, has 10 % of all tokens: 20."),
        (40, "The heaviest 2 of 40 tools have 10 % of all tokens: `t39` of `a` alone 40."),
    ],
)
def test_the_heaviest_tools_are_named_until_something_is_called(count: int, said: str) -> None:
    catalog = [Weight("a", f"t{number}", number + 1) for number in range(count)]
    assert any(line.startswith(said) for line in make_usage([], catalog, Assumptions(own_tokens=346)).advice)


def test_two_servers_with_the_same_tools_are_named_with_what_turns_one_off() -> None:
    twins = [Weight(server, tool, 100) for server in ("files", "my files") for tool in ("read", "write")]
    told = make_usage([], [*twins, Weight("git", "log", 500)], Assumptions()).advice
    assert told[0].startswith("`files` and `my files` have the same 2 tools.")
    assert "`mcp-optimizer disable 'my files'` saves its definitions: 200 tokens" in told[0]


def test_a_denial_is_no_fault_of_the_tools_description() -> None:
    calls = [event(EventKind.CALL, n, "create_issue", outcome=Outcome.DENIED) for n in range(5)]
    told = "\n".join(usage(*calls).advice)
    assert "`create_issue` of `git` was denied 5 of 5 times" in told
    assert "policy test create_issue --server git" in told
    assert "wrong arguments" not in told
    assert "failed" not in told


def test_clients_of_which_nothing_is_known_are_named() -> None:
    calls = [event(EventKind.CALL, 1)._replace(client="acme")]
    told = make_usage(calls, CATALOG, Assumptions(sends_definitions=lambda _: False))
    assert told.unknown == ("acme",)
    assert told.on_demand_told == "acme: whether all definitions would have been sent is not known; only results count."


def test_results_are_told_before_and_after_limits_and_money_for_a_model() -> None:
    calls = [event(EventKind.CALL, 1, "list_issues", tokens=100, full_tokens=400)]
    told = make_usage(calls, CATALOG, Assumptions(), Prices("m", "USD", 3, 0.3, 3.75))
    assert told.results == Reduction(before=400, after=100, saved=300, percent=75.0)
    assert told.money is not None
    assert (told.money.prices.model, told.money.prices.currency) == ("m", "USD")
    assert usage(*calls).money is None
    assert any("one for each call" in line for line in told.savings.assumptions)


def test_periods_are_minutes_at_first_then_hours_and_days_later() -> None:
    one = event(EventKind.CALL, 0, "send")
    soon = usage(one, event(EventKind.CALL, 61, "send", session="b"), event(EventKind.CALL, 400, "send", session="c"))
    assert [row.begin.minute for row in soon.periods] == [0, 5]
    assert usage(one, event(EventKind.CALL, 5 * 3_600, "send")).period == "hour"
    later = usage(one, event(EventKind.CALL, 5 * 86_400, "send"))
    assert [row.begin for row in later.periods] == [datetime(2026, 11, day, tzinfo=UTC) for day in (15, 20)]
    assert (soon.period, later.period) == ("minute", "day")


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 12 * 3_600), ("7d", 7 * 86_400), ("2w", 14 * 86_400), ("2026-11-14T12:00", 86_400)]
)
def test_a_moment_is_said_as_people_say_it(text: str, seconds: float) -> None:
    assert read_since(text, NOW) == START - seconds


def test_no_moment_means_everything_and_a_wrong_one_is_named() -> None:
    assert read_since(None, NOW) == 0
    for wrong in ("", "d", "7", "soon", "-1d"):
        with pytest.raises(ConfigurationError, match="--since"):
            read_since(wrong, NOW)
