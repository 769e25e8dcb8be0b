"""A caller is passed along with every call, and changes only in what is said."""

from __future__ import annotations

from mcp_optimizer.domain.caller import LOCAL, NOT_RECORDED, Caller, LatestRecord, Principal
from tests.unit.gateway.test_views import Asked

CALLER = Caller(
    "claude",
    "key:1",
    Asked(),
    {"_meta": {"a": "secret"}},
    Principal("key:1", "key:ci"),
    frozenset({"bank"}),
    is_orphaned=True,
    is_parked=True,
)


def test_what_a_caller_prints_tells_nothing_of_its_request() -> None:
    assert repr(CALLER) == "Caller('claude', 'key:1')"


def test_a_caller_whose_call_is_noted_or_that_is_reached_in_another_way_is_otherwise_the_same() -> None:
    record, link = LatestRecord(NOT_RECORDED), Asked()
    assert CALLER.noted(record, is_continuing=True) == CALLER._replace(record=record, is_continuing=True)
    assert CALLER.through(link) == CALLER._replace(link=link)
    assert CALLER.through(link).link is link


def test_a_caller_that_says_nothing_passes_nothing_on() -> None:
    assert dict(LOCAL.passed_on) == {}
