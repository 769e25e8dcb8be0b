"""Refusals are signs of life; a server is gone only when nothing of it is heard, several times in a row."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.upstream import monitoring
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.monitoring import CheckTrigger, Relisting, until_gone
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, RpcTimeout
from mcp_optimizer.upstream.session import UpstreamSession
from tests.unit.upstream.told import Told
from tests.waiting import until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(monitoring, "_SUSPICIOUS_INTERVAL", 0.01)
    monkeypatch.setattr(monitoring, "_FIRST_PAUSE", 0.01)


async def outlives(wire: Told, session: UpstreamSession, checks: int) -> bool:
    """Whether a server does not count as gone after more than so many messages to it."""
    watching = asyncio.create_task(until_gone(session, CheckTrigger(), 3))
    await until(lambda: watching.done() or len(wire.sent) > checks)
    is_alive = not watching.done()
    watching.cancel()
    await asyncio.wait({watching})
    return is_alive


UNREACHED = ExchangeLost("nothing answers at its url", was_sent=False)


async def test_a_server_that_refuses_its_checks_is_alive() -> None:
    wire = Told(*[RpcError(-32000, "rate limited")] * 100)
    assert await outlives(wire, wire.session(), 4)


async def test_two_checks_that_fail_are_not_enough() -> None:
    wire = Told(UNREACHED, UNREACHED, {}, UNREACHED, UNREACHED, *[{}] * 100)
    assert await outlives(wire, wire.session(), 6)


async def test_three_in_a_row_are() -> None:
    session = Told({}, *[UNREACHED] * 3).session()
    assert await asyncio.wait_for(until_gone(session, CheckTrigger(), 3), 10) == "nothing answers at its url"


async def test_a_server_that_works_on_a_call_may_leave_checks_unanswered() -> None:
    wire = Told()
    session = wire.session()
    call = asyncio.create_task(session.request("tools/call", {}, 60))
    await asyncio.sleep(0)
    wire.answers = [RpcTimeout("ping", 1)] * 100
    assert await outlives(wire, session, 5)
    call.cancel()
    await asyncio.wait({call})


async def test_a_broken_exchange_is_looked_into_at_once() -> None:
    wire, suspicion = Told(*[UNREACHED] * 3), CheckTrigger()
    suspicion.raise_()
    assert await asyncio.wait_for(until_gone(wire.session(), suspicion, 3), 5) == "nothing answers at its url"


async def test_a_list_that_cannot_be_had_leaves_the_old_one_and_is_asked_for_when_it_changes_again() -> None:
    wire = Told(RpcError(-32000, "later"), {"tools": [{"name": "new"}]})
    session, relisting, listed = wire.session(), Relisting("far", 1.0), asyncio.Queue[Listing]()
    running = asyncio.create_task(relisting.run(session, listed.put_nowait))
    relisting.changed()
    await until(lambda: len(wire.sent) == 1)
    relisting.changed()
    listing = await asyncio.wait_for(listed.get(), 5)
    assert [tool.name for tool in listing.tools] == ["new"]
    assert listed.empty()
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


async def test_a_server_whose_tools_change_all_the_time_is_not_listed_all_the_time() -> None:
    wire = Told(*[{"tools": []}] * 10_000)
    session, relisting = wire.session(), Relisting("far", 1.0)
    running = asyncio.create_task(relisting.run(session, lambda _listing: relisting.changed()))
    relisting.changed()
    await asyncio.sleep(0.5)
    assert 2 <= len(wire.sent) < 12
    running.cancel()
    await asyncio.wait({running})
