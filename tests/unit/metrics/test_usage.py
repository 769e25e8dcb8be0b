"""Which tools were used, which were not, and the advice that follows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mcp_optimizer.cli.reports import read_since
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
    told = "\n".join(usage(*calls).advice)
    assert "No tool of `mail` was ever called: 400 tokens" in told
    assert "`create_issue` of `git` failed 5 of 5 times" in told
    assert "Results of `list_issues` of `git` average 9,000 tokens" in told
    assert "pinned" not in told


def test_advice_pins_what_most_conversations_use() -> None:
    calls = [event(EventKind.CALL, n, "create_issue", session=str(n)) for n in range(6)]
    assert any("--pinned-tools create_issue" in line for line in usage(*calls).advice)


def test_before_anything_was_called_only_weights_are_judged() -> None:
    told = make_usage([], [Weight("a", f"t{n}", 10) for n in range(30)] + [Weight("b", "x", 900)], Assumptions())
    assert told.events == 0
    assert told.since is None
    assert told.advice[0].startswith("`b` alone has 75 %")
    assert make_usage([], [], Assumptions()).advice == ()


def test_results_are_told_before_and_after_limits_and_money_for_a_model() -> None:
    calls = [event(EventKind.CALL, 1, "list_issues", tokens=100, full_tokens=400)]
    told = make_usage(calls, CATALOG, Assumptions(), Prices("m", "USD", 3, 0.3, 3.75))
    assert told.results == Reduction(before=400, after=100, saved=300, percent=75.0)
    assert told.money is not None
    assert (told.money.prices.model, told.money.prices.currency) == ("m", "USD")
    assert usage(*calls).money is None
    assert any("one for each call" in line for line in told.savings.assumptions)


def test_periods_are_hours_at_first_and_days_later() -> None:
    one = event(EventKind.CALL, 0, "send")
    assert [row.begin for row in usage(one).periods] == [NOW]
    later = usage(one, event(EventKind.CALL, 5 * 86_400, "send"))
    assert [row.begin for row in later.periods] == [datetime(2026, 11, day, tzinfo=UTC) for day in (15, 20)]
    assert (usage(one).period, later.period) == ("hour", "day")


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
