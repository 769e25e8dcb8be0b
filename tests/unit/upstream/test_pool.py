"""The pool over a fake transport: who listens, what stops, whose session a call takes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CallInterrupted, ServerUnavailable
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerNews
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.upstream.fake_server import LEGACY, FakeServer, called
from tests.unit.upstream.running_pool import QUICK, running


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
    capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
    server = FakeServer({"initialize": {**LEGACY, "capabilities": capabilities}})
    async with running(one=server) as all_servers:
        await all_servers.until_up()
        await all_servers.pool.set_log_level("anna", "debug")
        assert "logging/setLevel" not in server.life.methods()
        await all_servers.pool.call("one", "tools/call", {"name": "add"}, Caller(link=Link("anna")))
        await all_servers.pool.set_log_level("anna", "debug")
        assert server.lives[1].methods()[-1] == "logging/setLevel"
