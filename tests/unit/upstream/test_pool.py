"""The pool and its supervisors over a fake transport: starts, calls, deaths, restarts, changed lists, the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, CallLost, CallTimeout, ServerUnavailable, UpstreamRefusal
from mcp_optimizer.upstream.endings import ExchangeLost, RpcError
from mcp_optimizer.upstream.failure import CommandNotFound, FailureKind
from mcp_optimizer.upstream.news import ServerNews
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState
from tests.unit.upstream.fake_server import LEGACY, FakeServer, FakeServers, called, tool

QUICK = PoolOptions(start_timeout=5, call_timeout=5, first_pause=0.001, longest_pause=0.004)


@dataclass
class Running:
    """A pool, everything its listeners were told, and ways to wait for more of it."""

    pool: UpstreamPool
    states: list[UpstreamState] = field(default_factory=list)
    notices: list[tuple[str, str]] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self, name: str = "one") -> UpstreamState:
        return next(state for state in self.pool.states() if state.name == name)

    def on_state(self, state: UpstreamState) -> None:
        self.states.append(state)
        self.told.set()

    def on_notice(self, server: str, method: str, _params: Any) -> None:
        self.notices.append((server, method))
        self.told.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self.told.clear()
                await self.told.wait()

    async def until_up(self, name: str = "one", restarts: int = 0) -> None:
        await self.until(
            lambda: self.state(name).status is ServerStatus.RUNNING and self.state(name).restarts >= restarts
        )

    async def call(self, server: str = "one", **arguments: Any) -> dict[str, Any]:
        return await self.pool.call(server, "tools/call", {"name": "add", "arguments": arguments})


@asynccontextmanager
async def running(
    *specs: ServerSpec, options: PoolOptions = QUICK, start: bool = True, **servers: FakeServer
) -> AsyncIterator[Running]:
    chosen = specs or [ServerSpec(name, Transport.STDIO, command=name) for name in servers]
    news = ServerNews()
    found = Running(UpstreamPool(chosen, options, "1", news, FakeServers(**servers).connect))
    news.listen(found.on_state, found.on_notice)
    if start:
        found.pool.start()
    try:
        yield found
    finally:
        await found.pool.stop()


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


async def test_a_listener_that_fails_stops_no_server() -> None:
    news = ServerNews()
    pool = UpstreamPool([ServerSpec("one", Transport.STDIO, command="x")], QUICK, "1", news, FakeServer().connect)

    def fails(_state: UpstreamState) -> None:
        raise ValueError

    news.listen(fails)
    pool.start()
    await pool.settled(10)
    assert pool.states()[0].status is ServerStatus.RUNNING
    await pool.stop()


async def test_a_changed_list_is_announced_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_optimizer.upstream.vital_signs._FIRST_PAUSE", 0.001)
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        server.tools = [tool("add"), tool("subtract")]
        server.life.say("notifications/tools/list_changed")
        await all_servers.until(lambda: bool(all_servers.notices))
        assert all_servers.notices == [("one", "notifications/tools/list_changed")]
        assert all_servers.state().listing.size == 2


async def test_a_list_that_cannot_be_read_again_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_optimizer.upstream.vital_signs._FIRST_PAUSE", 0.001)
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


async def test_a_disabled_server_and_an_unusable_entry_are_never_started() -> None:
    disabled = ServerSpec("off", Transport.STDIO, command="x", disabled=True)
    broken = ServerSpec("broken", Transport.STDIO, problem="no command", problem_kind=FailureKind.VARIABLE)
    off = FakeServer()
    async with running(disabled, broken, off=off, broken=off) as all_servers:
        await all_servers.pool.settled(1)
        assert all_servers.state("off").status is ServerStatus.STOPPED
        assert (all_servers.state("broken").reason, all_servers.state("broken").failure) == ("no command", "variable")
        with pytest.raises(ServerUnavailable):
            await all_servers.call("off")
    assert off.lives == []


async def test_stopping_tells_waiting_callers_and_ends_every_connection() -> None:
    server = FakeServer({"tools/call": None})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        calling = asyncio.create_task(all_servers.call())
        await server.until_received("tools/call")
        await all_servers.pool.stop()
        with pytest.raises(CallInterrupted, match="gateway"):
            await calling
    assert [life.has_ended for life in server.lives] == [True]


async def test_a_pool_that_drains_finishes_calls_and_takes_no_more() -> None:
    server = FakeServer({"tools/call": None})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        calling = asyncio.create_task(all_servers.call())
        await server.until_received("tools/call")
        draining = asyncio.create_task(all_servers.pool.drained(5))
        await asyncio.sleep(0)
        with pytest.raises(ServerUnavailable, match="stopping"):
            await all_servers.call()
        number = next(message["id"] for message in server.life.sent if message.get("method") == "tools/call")
        server.life.peer.receive({"jsonrpc": "2.0", "id": number, "result": called("late")})
        await draining
        assert await calling == called("late")


async def test_draining_ends_with_its_time_though_a_call_goes_on() -> None:
    server = FakeServer({"tools/call": None})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        calling = asyncio.create_task(all_servers.call())
        await server.until_received("tools/call")
        await asyncio.wait_for(all_servers.pool.drained(0.01), 5)
        assert not calling.done()
        await all_servers.pool.stop()
        with pytest.raises(CallInterrupted):
            await calling


@dataclass
class Link:
    """A legacy client that can be asked."""

    key: str
    capabilities: dict[str, Any] = field(default_factory=lambda: {"elicitation": {}})
    is_modern: bool = False
    log_level: str | None = None
    questions: list[str] = field(default_factory=list)

    @property
    def lasting(self) -> Link:
        return self

    async def ask(self, method: str, params: Any) -> dict[str, Any]:
        self.questions.append(params["message"])
        return {"action": "accept", "content": {}}

    async def tell(self, method: str, params: Any) -> None: ...

    async def release_streams(self) -> None: ...


async def test_a_client_that_can_be_asked_has_a_session_of_its_own_which_ends_with_it() -> None:
    server = FakeServer()
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        caller = Caller(link=Link("anna"))
        await all_servers.pool.call("one", "tools/call", {"name": "add"}, caller)
        own = server.lives[1]
        initialized = next(message for message in own.sent if message["method"] == "initialize")
        assert initialized["params"]["capabilities"] == {"elicitation": {}}
        assert "tools/call" not in server.lives[0].methods()
        await all_servers.pool.tell("anna", "notifications/roots/list_changed")
        assert own.methods()[-1] == "notifications/roots/list_changed"
        all_servers.pool.client_left("anna")
        async with asyncio.timeout(5):
            while not own.has_ended:
                await asyncio.sleep(0)
        assert not server.lives[0].has_ended


async def test_a_question_goes_to_the_client_whose_session_it_came_on_and_names_the_server() -> None:
    server = FakeServer({"tools/call": None})
    anna, bert = Link("anna"), Link("bert")
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        calls = [
            asyncio.create_task(all_servers.pool.call("one", "tools/call", {"name": "add"}, Caller(link=link)))
            for link in (anna, bert)
        ]
        await server.until_received("tools/call", times=2)
        own = next(life for life in server.lives[1:] if life.peer.owner is not None and life.peer.owner.key == "bert")
        own.say("elicitation/create", {"message": "Which?", "requestedSchema": {"type": "object"}}, number=9)
        async with asyncio.timeout(5):
            while not bert.questions:
                await asyncio.sleep(0)
        assert anna.questions == []
        assert "one" in bert.questions[0]
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_a_log_level_is_set_only_where_a_client_has_its_own_session() -> None:
    capabilities = {"tools": {}, "logging": {}}
    server = FakeServer({"initialize": {**LEGACY, "capabilities": capabilities}})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        await all_servers.pool.set_log_level("anna", "debug")
        assert "logging/setLevel" not in server.life.methods()
        await all_servers.pool.call("one", "tools/call", {"name": "add"}, Caller(link=Link("anna")))
        await all_servers.pool.set_log_level("anna", "debug")
        assert server.lives[1].methods()[-1] == "logging/setLevel"
