"""A caller may make a minute's calls at once, then as many as the rate gives back, and is told when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.access.policy.policy import Rates
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import TooManyCalls
from mcp_optimizer.serving.messages import as_mcp_error

ALICE, BOB = Principal("a", "corp:alice"), Principal("b", "corp:bob")


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_a_caller_is_told_how_long_to_wait_and_may_call_then() -> None:
    clock = Clock()
    rates = Rates(60, clock=clock)
    assert [rates.take(ALICE) for _ in range(60)] == [None] * 60
    assert rates.take(ALICE) == pytest.approx(1.0)
    clock.pass_by(1.0)
    assert rates.take(ALICE) is None
    assert rates.take(ALICE) is not None


def test_one_caller_uses_up_nothing_of_another() -> None:
    rates = Rates(1, clock=Clock())
    assert rates.take(ALICE) is None
    assert rates.take(ALICE) is not None
    assert rates.take(BOB) is None


def test_two_names_of_one_caller_share_its_calls() -> None:
    rates = Rates(1, clock=Clock())
    assert rates.take(ALICE) is None
    assert rates.take(Principal(ALICE.id, "another name")) is not None


def test_a_key_may_have_a_rate_of_its_own_or_none() -> None:
    rates = Rates(1, clock=Clock())
    often = Principal("o", "key:often", calls_per_minute=3)
    assert [rates.take(often) for _ in range(3)] == [None] * 3
    assert rates.take(often) is not None
    unlimited = Principal("u", "key:unlimited", calls_per_minute=0)
    assert [rates.take(unlimited) for _ in range(100)] == [None] * 100


def test_without_a_setting_nobody_waits() -> None:
    assert [Rates().take(ALICE) for _ in range(1_000)] == [None] * 1_000


def test_the_error_says_when_to_try_again() -> None:
    rates = Rates(6, clock=Clock())
    for _ in range(6):
        rates.check(ALICE)
    with pytest.raises(TooManyCalls, match=r"may make 6 a minute. Try again in 10.0 s") as caught:
        rates.check(ALICE)
    assert caught.value.retry_after == pytest.approx(10.0)
    assert as_mcp_error(caught.value).data == {"retryAfter": caught.value.retry_after}


def test_many_callers_take_bounded_memory_and_the_busy_one_stays_limited() -> None:
    rates = Rates(2, clock=Clock(), most=10)
    for number in range(1_000):
        rates.take(ALICE)
        rates.take(Principal(str(number), "corp:other"))
    assert rates.take(ALICE) is not None


@given(st.lists(st.floats(min_value=0, max_value=20), max_size=200), st.integers(min_value=1, max_value=30))
def test_no_more_calls_pass_than_the_bucket_and_the_rate_give(pauses: list[float], limit: int) -> None:
    clock = Clock()
    rates = Rates(limit, clock=clock)
    passed = 0
    for pause in pauses:
        clock.pass_by(pause)
        passed += rates.take(ALICE) is None
    assert passed <= limit + clock.now * limit / 60 + 1e-6


def test_what_costs_several_calls_needs_one_and_the_others_are_owed() -> None:
    clock = Clock()
    rates = Rates(6, clock=clock)
    assert rates.take(ALICE, 16) is None, "more than a minute's calls, and yet permitted"
    assert rates.take(ALICE) == pytest.approx(110.0), "10 are owed, and one is needed"
    clock.pass_by(110.0)
    assert rates.take(ALICE) is None
    assert rates.take(ALICE) is not None
