"""Other entries for a running pool: what goes on, what is started, what ends, and what its callers are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, ToolSelection, Transport
from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, ConfigurationError, ServerUnavailable
from mcp_optimizer.upstream.pool import AppliedEntries
from tests.unit.upstream.fake_server import FakeServer, called, tool
from tests.unit.upstream.running_pool import QUICK, running
from tests.waiting import until

PATIENT = replace(QUICK, drain=10.0)
IMPATIENT = replace(QUICK, drain=0.01)


def spec(name: str, **fields: Any) -> ServerSpec:
    return ServerSpec(name, Transport.STDIO, **{"command": name, **fields})


async def test_entries_that_stay_the_same_keep_their_sessions_in_whatever_order() -> None:
    one, two = FakeServer(), FakeServer()
    async with running(one=one, two=two) as servers:
        await servers.pool.settled(10)
        before = len(servers.states)
        assert servers.pool.apply([spec("two"), spec("one")]) == AppliedEntries(unchanged=("two", "one"))
        assert [state.name for state in servers.pool.states()] == ["two", "one"]
        await servers.call("one")
        assert (len(one.lives), len(two.lives), len(servers.states)) == (1, 1, before)


async def test_an_added_server_starts_and_a_removed_one_ends() -> None:
    one, two = FakeServer(), FakeServer()
    async with running(spec("one"), one=one, two=two) as servers:
        await servers.until_up("one")
        assert servers.pool.apply([spec("two")]) == AppliedEntries(added=("two",), removed=("one",))
        assert servers.gone == ["one"]
        await servers.until_up("two")
        await until(lambda: one.life.has_ended)
        with pytest.raises(ServerUnavailable, match="'one' any more: its entry was removed"):
            await servers.call("one")
        await servers.pool.unwatch_resource("one", "file:///a")


async def test_a_changed_entry_ends_the_old_server_before_the_new_one_starts() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        applied = servers.pool.apply([spec("one", args=("--new",))])
        assert (applied.changed, servers.gone, servers.state().status) == (("one",), ["one"], ServerStatus.STARTING)
        await servers.until_up()
        assert [life.has_ended for life in one.lives] == [True, False]
        assert servers.state().spec.args == ("--new",)


async def test_calls_in_progress_finish_on_the_server_that_they_were_made_to() -> None:
    one = FakeServer({"tools/call": None})
    async with running(one=one, options=PATIENT) as servers:
        await servers.until_up()
        calling = asyncio.create_task(servers.call())
        await one.until_received("tools/call")
        servers.pool.apply([spec("one", args=("--new",))])
        with pytest.raises(ServerUnavailable, match="starting"):
            await servers.call()
        assert len(one.lives) == 1
        number = next(message["id"] for message in one.life.sent if message.get("method") == "tools/call")
        one.life.peer.receive({"jsonrpc": "2.0", "id": number, "result": called("late")})
        assert await calling == called("late")
        await servers.until_up()
        assert len(one.lives) == 2


async def test_a_call_that_does_not_finish_in_time_is_told_why_it_ended() -> None:
    one = FakeServer({"tools/call": None})
    async with running(one=one, options=IMPATIENT) as servers:
        await servers.until_up()
        calling = asyncio.create_task(servers.call())
        await one.until_received("tools/call")
        servers.pool.apply([spec("one", args=("--new",))])
        with pytest.raises(CallInterrupted, match="The entry of the server 'one' was changed"):
            await calling


async def test_what_a_session_does_not_depend_on_changes_without_another_session() -> None:
    one = FakeServer({"tools/list": lambda _params: {"tools": [tool("add"), tool("drop")]}})
    async with running(one=one) as servers:
        await servers.until_up()
        changed = spec(
            "one", tools=ToolSelection(turned_off=("drop",)), description="Sums", trust=TrustMode.OFF, timeout=7.0
        )
        assert servers.pool.apply([changed]).changed == ("one",)
        assert servers.state().spec.description == "Sums"
        await servers.until(lambda: servers.state().listing.turned_off == ("drop",))
        assert (len(one.lives), servers.gone) == (1, [])


async def test_a_disabled_server_ends_and_starts_again_when_it_is_enabled() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        servers.pool.apply([spec("one", disabled=True)])
        assert servers.state().status is ServerStatus.STOPPED
        await until(lambda: one.life.has_ended)
        servers.pool.apply([spec("one")])
        await servers.until_up()
        # What was known of it still holds.
        assert (len(one.lives), servers.gone) == (2, [])


async def test_an_entry_that_cannot_be_used_any_more_is_shown_with_its_problem() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        servers.pool.apply([ServerSpec("one", Transport.STDIO, problem="no command")])
        assert (servers.state().status, servers.state().reason) == (ServerStatus.FAILED, "no command")


async def test_a_name_that_comes_back_at_once_waits_for_the_end_of_its_predecessor() -> None:
    one = FakeServer({"tools/call": None})
    async with running(one=one, options=PATIENT) as servers:
        await servers.until_up()
        calling = asyncio.create_task(servers.call())
        await one.until_received("tools/call")
        for _ in range(50):
            servers.pool.apply([])
            servers.pool.apply([spec("one", command="another")])
        assert len(one.lives) == 1
        one.life.die()
        with pytest.raises(CallInterrupted):
            await calling
        await servers.until_up()
        assert len(one.lives) == 2


@pytest.mark.slow
async def test_a_thousand_servers_that_come_and_go_leave_nothing_behind() -> None:
    names = [f"s{number}" for number in range(1_000)]
    fakes = {name: FakeServer() for name in names}
    async with running(spec("s0"), options=QUICK, start=True, recall=None, **fakes) as servers:
        for _ in range(5):
            servers.pool.apply([spec(name) for name in names])
            servers.pool.apply([spec("s0")])
        servers.pool.apply([spec(name) for name in names])
        await servers.pool.settled(60)
        assert {state.status for state in servers.pool.states()} == {ServerStatus.RUNNING}
        assert len(fakes["s0"].lives) == 1
        assert all(sum(not life.has_ended for life in fake.lives) == 1 for fake in fakes.values())


async def test_entries_are_taken_before_the_start_and_ignored_after_the_end() -> None:
    one, two = FakeServer(), FakeServer()
    async with running(spec("one"), one=one, two=two, start=False) as servers:
        servers.pool.apply([spec("two")])
        servers.pool.start()
        await servers.until_up("two")
        await servers.pool.stop()
        assert servers.pool.apply([spec("one")]) == AppliedEntries(unchanged=("two",))
    assert one.lives == []


async def test_a_pool_that_stops_ends_servers_that_are_still_finishing_calls() -> None:
    one = FakeServer({"tools/call": None})
    async with running(one=one, options=PATIENT) as servers:
        await servers.until_up()
        calling = asyncio.create_task(servers.call())
        await one.until_received("tools/call")
        servers.pool.apply([])
        await servers.pool.stop()
        with pytest.raises(CallInterrupted, match="removed"):
            await calling
    assert one.life.has_ended


async def test_a_restart_is_another_life_without_a_pause_and_is_counted() -> None:
    one = FakeServer()
    async with running(one=one, options=replace(QUICK, first_pause=60, longest_pause=60)) as servers:
        await servers.until_up()
        one.life.die()
        await servers.until(lambda: servers.state().status is ServerStatus.FAILED)
        servers.pool.restart("one")
        await servers.until_up(restarts=1)
        assert (len(one.lives), servers.gone) == (2, [])


async def test_a_restart_keeps_what_clients_watch() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        await servers.pool.watch_resource("one", "file:///a")
        servers.pool.restart("one")
        await one.until_received("resources/subscribe", 2)


async def test_only_servers_that_exist_and_can_run_are_restarted() -> None:
    async with running(spec("off", disabled=True), off=FakeServer()) as servers:
        with pytest.raises(ConfigurationError, match="cannot be started: disabled in its server file"):
            servers.pool.restart("off")
        with pytest.raises(ConfigurationError, match=r"There is no server .of.\. Servers: off"):
            servers.pool.restart("of")
        with pytest.raises(ConfigurationError, match="There is no server"):
            servers.pool.log("of")


async def test_a_state_says_since_when_it_holds() -> None:
    one = FakeServer()
    async with running(one=one) as servers:
        await servers.until_up()
        since = servers.state().since
        one.life.say("notifications/tools/list_changed")
        await servers.until(lambda: ("one", "notifications/tools/list_changed") in servers.notices)
        assert servers.state().since == since > 1_700_000_000
