"""Savings are calculated from events by rules that can be checked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.domain.client_habits import ResultRoom
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.savings import (
    PLAIN_PRICES,
    SILENCE,
    Assumptions,
    ModelInput,
    Prices,
    RunningSavings,
    Savings,
    savings,
)

LOAD, FIND, CALL = EventKind.LOAD, EventKind.FIND, EventKind.CALL
BASELINE = 10_000


def event(kind: EventKind, tokens: int, at: float = 0.0, *, full: int | None = None, **fields: object) -> Event:
    fields.setdefault("session", "s")
    fields.setdefault("baseline_tokens", BASELINE)
    return Event(at=at, kind=kind, tokens=tokens, full_tokens=tokens if full is None else full, **fields)  # type: ignore[arg-type]


SESSION = [event(LOAD, 300), event(FIND, 500, 1), event(CALL, 200, 2, full=2_000)]


def test_a_session_of_one_search_and_one_call() -> None:
    found = savings(SESSION)
    # With the gateway: 300, then 300+500, then 300+500+200. Without: 10,000, then 10,000+2,000.
    assert found.with_us == ModelInput(requests=3, fresh=1_000, repeated=300 + 800)
    assert found.without == ModelInput(requests=2, fresh=12_000, repeated=10_000)
    assert found.cost(PLAIN_PRICES, cached=False) == Reduction(before=22_000, after=2_100, saved=19_900, percent=90.45)
    assert found.cost(PLAIN_PRICES, cached=True).before == 12_000 * 1.25 + 10_000 * 0.1


def test_more_requests_than_were_seen_can_be_assumed_but_never_fewer() -> None:
    found = savings(SESSION, Assumptions(requests_per_session=10))
    assert (found.with_us.requests, found.without.requests) == (10, 9)
    assert found.with_us.tokens == 300 + 800 + 8 * 1_000
    assert found.without.tokens == 10_000 + 8 * 12_000
    assert savings(SESSION, Assumptions(requests_per_session=1)) == savings(SESSION)


def test_of_a_client_that_loads_tools_on_demand_only_results_count() -> None:
    found = savings([one._replace(client="claude-code") for one in SESSION], Assumptions(loads_on_demand=bool))
    # The call, and a request that reads its result: 200 tokens of it, not 2,000.
    assert found.with_us == ModelInput(requests=2, fresh=200, repeated=0)
    assert found.without == ModelInput(requests=2, fresh=2_000, repeated=0)
    searching = [event(LOAD, 300, client="codex"), *(event(FIND, 500, at, client="codex") for at in range(1, 9))]
    assert savings(searching, Assumptions(loads_on_demand=bool)) == Savings()


def test_of_a_client_that_nothing_is_known_of_only_results_count() -> None:
    unknown = Assumptions(sends_definitions=lambda _: False)
    assert savings(SESSION, unknown) == savings(SESSION, Assumptions(loads_on_demand=lambda _: True))


def test_a_search_reads_what_the_client_sends_with_every_request_once_more() -> None:
    plain, prompted = savings(SESSION), savings(SESSION, Assumptions(own_prompt=lambda _: 7_000))
    assert prompted.with_us.tokens - plain.with_us.tokens == 3 * 7_000
    assert prompted.without.tokens - plain.without.tokens == 2 * 7_000


def test_no_request_is_larger_than_the_models_window() -> None:
    calls = [event(CALL, 100, n, full=20_000, baseline_tokens=0) for n in range(1_000)]
    found = savings([event(LOAD, 0), *calls], Assumptions(window=50_000))
    assert found.without.requests == 1_001
    assert found.without.tokens <= 1_001 * 50_000
    # Compacted at every third call: 0, 20,000 and 40,000 tokens, and 20,000 after it.
    assert found.without.tokens == pytest.approx(1_001 * 30_000, rel=0.01)
    assert savings([event(CALL, 10, full=10, baseline_tokens=900_000)]).without.tokens == 2 * 200_000


def test_a_result_counts_for_no_more_than_clients_give_their_model_of_one() -> None:
    huge = [event(CALL, 500, full=3_700_000, baseline_tokens=0)]
    assert savings(huge).without.tokens == 25_000


def test_what_the_client_would_have_cut_itself_is_not_saved() -> None:
    calls = [event(CALL, 500, 1.0, full=18_000), event(CALL, 500, 9.0, full=9_000)]
    known = Assumptions(room=lambda _: ResultRoom(whole=10_000, cut=100))
    assert savings(calls, known).without.tokens == savings(calls).without.tokens - 2 * (18_000 - 100)
    assert savings(calls, known).with_us == savings(calls).with_us


def test_calls_that_overlap_were_asked_for_by_one_request() -> None:
    together = [event(LOAD, 300), *(event(CALL, 50, 1.0 + n / 100, milliseconds=900.0) for n in range(4))]
    found = savings(together)
    assert (found.with_us.requests, found.without.requests) == (2, 2)
    assert found.with_us.tokens == 300 + (300 + 4 * 50)


@pytest.mark.parametrize(
    ("session", "assumptions"),
    [("~shared", Assumptions()), ("s", Assumptions(tells_conversations_apart=lambda _: False))],
)
def test_where_conversations_are_not_told_apart_a_result_counts_once(session: str, assumptions: Assumptions) -> None:
    calls = [event(CALL, 100, n, full=1_000, baseline_tokens=0, session=session) for n in range(100)]
    found = savings([event(LOAD, 0, session=session), *calls], assumptions)
    assert found.without.tokens == 100 * 1_000
    assert found.with_us.tokens == 100 * 100


def test_a_cache_can_turn_savings_around() -> None:
    """The gateway's short list changes with every call; the longer list without the gateway does not change."""
    changing = [
        one
        for n in range(8)
        for one in (event(LOAD, 1_000 + n, n, baseline_tokens=2_000), event(CALL, 50, n + 0.5, baseline_tokens=2_000))
    ]
    assert savings(changing).cost(PLAIN_PRICES, cached=False).saved > 0
    assert savings(changing).cost(PLAIN_PRICES, cached=True).saved < 0


def test_many_searches_over_a_small_catalog_cost_more_than_they_save() -> None:
    searching = [event(LOAD, 300), *(event(FIND, 400, n, baseline_tokens=900) for n in range(5))]
    assert savings(searching, Assumptions(requests_per_session=40)).cost(PLAIN_PRICES, cached=False).saved < 0


def test_a_list_that_changes_is_read_anew_with_everything_behind_it() -> None:
    steady = [event(LOAD, 300), event(FIND, 500, 1), event(CALL, 100, 2), event(CALL, 100, 3)]
    changing = [*steady[:3], event(LOAD, 350, 2.5), steady[3]]
    assert savings(steady).with_us.fresh == 300 + 500 + 100 + 100
    # 800 before the change, 950 read again after it, then 100 more.
    assert savings(changing).with_us.fresh == 800 + 950 + 100


def test_a_failed_try_is_ours_alone() -> None:
    tried = [*SESSION[:2], event(CALL, 80, 1.5, outcome=Outcome.BAD_REQUEST), SESSION[2]]
    assert savings(tried).without == savings(SESSION).without
    assert savings(tried).with_us.tokens > savings(SESSION).with_us.tokens


def test_a_long_silence_begins_a_new_conversation_with_the_list_of_before() -> None:
    later = [event(FIND, 500, 2 + SILENCE + 1)]
    found = savings([*SESSION, *later])
    assert found.sessions == 2
    assert found.with_us == savings(SESSION).with_us + ModelInput(requests=2, fresh=800, repeated=300)


def test_conversations_are_told_apart_and_a_client_that_only_listed_cost_nothing_yet() -> None:
    other = [event(LOAD, 300, session="other")]
    assert savings([*SESSION, *other]) == savings(SESSION)
    twice = [*SESSION, *(event(e.kind, e.tokens, e.at, full=e.full_tokens, session="t") for e in SESSION)]
    assert savings(twice) == savings(SESSION) + savings(SESSION)
    assert savings([]) == Savings()


def test_without_a_recorded_list_our_own_tools_are_assumed() -> None:
    assert savings(SESSION[1:], Assumptions(own_tokens=300)) == savings(SESSION)


def test_money_is_for_a_named_model_with_its_own_cache_prices() -> None:
    prices = Prices("some-model", "USD", input=3.0, cache_read=0.3, cache_write=3.75)
    assert savings(SESSION).cost(prices, cached=False).before == pytest.approx(22_000 * 3 / 1e6)
    assert savings(SESSION).cost(prices, cached=True).after == pytest.approx((1_000 * 3.75 + 1_100 * 0.3) / 1e6)


amounts = st.integers(0, 5_000)


@given(st.lists(st.tuples(st.sampled_from(list(EventKind)), amounts, amounts), max_size=30), st.integers(1, 60))
def test_what_is_read_is_the_sum_over_all_requests_however_it_is_cached(
    parts: list[tuple[EventKind, int, int]], requests: int
) -> None:
    events = [event(kind, sent, at, full=sent + more) for at, (kind, sent, more) in enumerate(parts)]
    found = savings(events, Assumptions(requests_per_session=requests, own_tokens=300))
    menu, conversation, total = 300, 0, 0
    answered = [e for e in events if e.kind is not LOAD]
    for e in events:
        if e.kind is LOAD:
            menu = e.tokens
        else:
            total += menu + conversation
            conversation += e.tokens
    if answered:
        total += (menu + conversation) * max(1, requests - len(answered))
    assert found.with_us.tokens == total
    # Without a cache nothing is cheaper than the sum, and a cache at the full price changes nothing.
    same = Prices("m", "USD", 1.0, 1.0, 1.0)
    assert found.with_us.cost(same, cached=True) == found.with_us.cost(same, cached=False)
    assert PLAIN_PRICES.cache_read < PLAIN_PRICES.input


def test_a_running_total_counts_conversations_that_are_forgotten_by_now() -> None:
    running, events = RunningSavings(Assumptions, most=10), [event(CALL, 5, n, session=str(n)) for n in range(2_500)]
    for one in events:
        running.take(one)
    assert running.total == savings(events)
    assert running.highest == (running.total.with_us.tokens, running.total.without.tokens)
