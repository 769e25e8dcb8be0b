"""Somebody who signed in is remembered for a while, and a limited number of them."""

from __future__ import annotations

from mcp_optimizer.dashboard.sign_ins import LASTS, SignIns
from mcp_optimizer.domain.principal import Principal, Role


def holder(number: int) -> Principal:
    return Principal(f"key:{number}", f"key:holder {number}", role=Role.SEE)


def test_ten_thousand_sign_ins_leave_a_limited_number() -> None:
    known = SignIns()
    first = known.begin(holder(-1))
    same = [known.begin(holder(0)) for _ in range(10_000)]
    # Whoever signs in again and again ends only their own.
    assert known.find(first) is not None
    assert len(known) == 51
    assert len(set(same)) == 10_000
    assert known.find(same[0]) is None
    last = [known.begin(holder(number)) for number in range(1, 2_000)][-1]
    assert len(known) == 1_000
    assert known.find(first) is None
    assert known.find(last) is not None


def test_a_sign_in_lasts_twelve_hours_however_often_it_is_used() -> None:
    moments = iter([0.0, 1.0, LASTS / 2, LASTS - 1.0, float(LASTS)])
    known = SignIns(clock=lambda: next(moments))
    kept = known.begin(holder(1))
    assert [known.find(kept) is not None for _ in range(4)] == [True, True, True, False]
    assert len(known) == 0
