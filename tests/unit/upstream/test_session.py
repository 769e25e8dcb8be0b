"""A session: what it keeps open, what it leaves alone, and what it says when a request does not end well."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.errors import CallInterrupted, CallLost, CallTimeout, UpstreamRefusal
from mcp_optimizer.upstream import session as sessions
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, RpcTimeout, ServerGone
from mcp_optimizer.upstream.session import Agreement
from tests.unit.upstream.told import Told

MODERN = Agreement("2026-07-28", capabilities={"tools": {"listChanged": True}})
LEGACY = Agreement("2025-11-25")


@pytest.mark.parametrize(
    ("ending", "error", "words"),
    [
        (RpcError(-32000, "rate limited"), UpstreamRefusal, "rate limited"),
        (ExchangeLost("cut off"), CallLost, "is not known"),
        (ExchangeLost("nobody there", was_sent=False), CallLost, "was not made"),
        (RpcTimeout("tools/call", 3), CallTimeout, "did not answer within 5 s"),
        (RpcTimeout("tools/call", 60, in_all=True), CallTimeout, "was not done after 60 s"),
        (ServerGone(), CallInterrupted, "is being restarted"),
    ],
)
async def test_each_kind_of_ending_is_told_as_what_it_is(ending: Exception, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        await Told(ending).session().request("tools/call", {}, 5)


async def test_a_subscription_that_is_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_FIRST_LISTEN_PAUSE", 0.001)
    wire = Told(*[RpcError(-32000, "no")] * 10)
    await asyncio.wait_for(wire.session(MODERN).watch_lists(), 5)
    assert wire.sent == ["subscriptions/listen"]


async def test_a_subscription_that_breaks_is_opened_again_after_pauses_that_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_FIRST_LISTEN_PAUSE", 0.01)
    wire = Told(*[ExchangeLost("cut off")] * 1_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.session(MODERN).watch_lists(), 0.5)
    assert 2 < len(wire.sent) < 12


async def test_a_notification_that_cannot_be_delivered_is_nobodys_trouble() -> None:
    class Broken(Told):
        async def deliver(self, *_: object) -> None:
            raise ExchangeLost("cut off")

    await Broken().session(LEGACY).tell("notifications/roots/list_changed")
