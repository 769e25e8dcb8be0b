"""A server's supervisor over a fake transport: start, calls, death, restart, changed lists."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, CallLost, CallTimeout, UpstreamRefusal
from mcp_optimizer.upstream.diagnostics import CommandNotFound
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError
from tests.unit.upstream.fake_server import LEGACY, FakeServer, called, tool
from tests.unit.upstream.running_pool import QUICK, running


async def test_a_legacy_server_is_probed_then_initialized_and_its_tools_are_listed() -> None:
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        assert server.life.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/list"]
        assert all_servers.state().protocol_version == "2025-11-25"
        listing = next(state.listing for state in all_servers.states if state.status is ServerStatus.RUNNING)
        assert [tool.name for tool in listing.tools] == ["add"]


async def test_a_modern_server_needs_no_initialize() -> None:
    server = FakeServer(is_modern=True)
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        assert "initialize" not in server.life.methods()
        assert all_servers.state().protocol_version == "2026-07-28"


async def test_the_state_keeps_no_definitions_only_their_number() -> None:
    async with running(one=FakeServer(tools=[tool("a"), tool("b")])) as all_servers:
        await all_servers.until_up()
        assert (all_servers.state().listing.tools, all_servers.state().listing.size) == ((), 2)


async def test_a_call_returns_what_the_server_sent() -> None:
    server = FakeServer({"tools/call": lambda params: called(str(params["arguments"]["a"]))})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        assert await all_servers.call(a=7) == called("7")


async def test_a_refused_call_leaves_the_server_running() -> None:
    server = FakeServer({"tools/call": RpcError(-32000, "rate limited")})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        with pytest.raises(UpstreamRefusal, match="rate limited"):
            await all_servers.call()
        assert all_servers.state().status is ServerStatus.RUNNING
        assert len(server.lives) == 1


async def test_a_broken_exchange_leaves_the_server_running() -> None:
    server = FakeServer({"tools/call": ExchangeLost("cut off")})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        with pytest.raises(CallLost, match="cut off"):
            await all_servers.call()
        assert all_servers.state().status is ServerStatus.RUNNING


async def test_a_call_that_is_not_answered_ends_with_its_deadline() -> None:
    server = FakeServer({"tools/call": None})
    async with running(one=server, options=replace(QUICK, call_timeout=0.05)) as all_servers:
        await all_servers.until_up()
        with pytest.raises(CallTimeout):
            await all_servers.call()
        assert all_servers.state().status is ServerStatus.RUNNING


async def test_a_server_that_dies_is_started_again_and_answers() -> None:
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        server.life.die("it exited with code 3")
        await all_servers.until_up(restarts=1)
        assert await all_servers.call() == called("done")
    down = next(state for state in all_servers.states if state.status is ServerStatus.FAILED)
    assert (down.reason, down.failure) == ("it exited with code 3", FailureKind.EXITED)


async def test_a_caller_learns_of_a_death_only_after_the_listeners_do() -> None:
    server = FakeServer({"tools/call": None})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        calling = asyncio.create_task(all_servers.call())
        await server.until_received("tools/call")
        server.life.die()
        with pytest.raises(CallInterrupted, match="exited with code 1"):
            await calling
        assert ServerStatus.FAILED in [state.status for state in all_servers.states]


async def test_pauses_between_restarts_grow_up_to_their_maximum(caplog: pytest.LogCaptureFixture) -> None:
    options = replace(QUICK, first_pause=1.0, longest_pause=4.0)
    waited: list[float] = []
    has_waited = asyncio.Event()

    async def no_time(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) >= 5:
            has_waited.set()
            await asyncio.Event().wait()

    server = FakeServer(refuses=CommandNotFound("the command 'x' was not found"))
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("mcp_optimizer.upstream.supervisor.asyncio.sleep", no_time)
        async with running(one=server, options=options) as all_servers:
            await asyncio.wait_for(has_waited.wait(), 10)
            assert all_servers.state().failure is FailureKind.COMMAND
    expected = [1, 2, 4, 4, 4]
    assert all(0.8 * pause <= seconds <= 1.2 * pause for pause, seconds in zip(expected, waited, strict=True))
    assert "Restarting in 2 s" in caplog.text


async def test_a_server_that_says_nothing_is_given_up_after_the_start_timeout() -> None:
    server = FakeServer({"server/discover": None})
    async with running(one=server, options=replace(QUICK, start_timeout=0.05)) as all_servers:
        await all_servers.until(lambda: all_servers.state().failure is FailureKind.SILENT)
        assert "did not answer within 0.05 s" in all_servers.state().reason


async def test_a_fault_of_ours_ends_one_server_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Bug(Exception):
        pass

    bad = FakeServer(refuses=Bug("a secret"))
    async with running(one=FakeServer(), bad=bad) as all_servers:
        await all_servers.until(lambda: all_servers.state("bad").failure is FailureKind.FAULT)
        await all_servers.until_up("one")
        assert await all_servers.call("one") == called("done")
    assert "a secret" not in caplog.text


async def test_a_changed_list_is_announced_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_optimizer.upstream.monitoring._FIRST_PAUSE", 0.001)
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        server.tools = [tool("add"), tool("subtract")]
        server.life.say("notifications/tools/list_changed")
        await all_servers.until(lambda: bool(all_servers.notices))
        assert all_servers.notices == [("one", "notifications/tools/list_changed")]
        assert all_servers.state().listing.size == 2


async def test_a_list_that_cannot_be_read_again_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_optimizer.upstream.monitoring._FIRST_PAUSE", 0.001)
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        server.answers["tools/list"] = RpcError(-32603, "not now")
        server.life.say("notifications/tools/list_changed")
        await server.until_received("tools/list", times=2)
        assert await all_servers.call() == called("done")
        assert (all_servers.state().listing.size, len(server.lives)) == (1, 1)


async def test_a_watched_resource_is_watched_again_after_a_restart() -> None:
    server = FakeServer({"initialize": {**LEGACY, "capabilities": {"tools": {}, "resources": {"subscribe": True}}}})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        await all_servers.pool.watch_resource("one", "file:///a")
        server.life.die()
        await all_servers.until_up(restarts=1)
        assert "resources/subscribe" in server.life.methods()
        await all_servers.pool.unwatch_resource("one", "file:///a")
        server.life.die()
        await all_servers.until_up(restarts=2)
        assert "resources/subscribe" not in server.life.methods()
