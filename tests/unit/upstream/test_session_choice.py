"""Clients on stdio that share a gateway: who has a session, and a process, that no other client uses."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Sharing, Start, Transport
from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ServerUnavailable, UpstreamError
from mcp_optimizer.upstream.state import KnownServer
from tests.unit.upstream.fake_server import FakeServer, Life, called
from tests.unit.upstream.running_pool import QUICK, Running, running
from tests.waiting import until

JOINED = replace(QUICK, has_joined_clients=True, start=Start.ON_DEMAND, idle_timeout=0)
APART = ServerSpec("one", Transport.STDIO, command="one", session=Sharing.OWN)
ROOTS: dict[str, Any] = {"roots": {}}


@dataclass(frozen=True)
class Client:
    """A client on stdio."""

    key: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    is_modern: bool = False
    log_level: str | None = None

    @property
    def lasting(self) -> ClientLink:
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"roots": [{"uri": f"file:///{self.key}"}]}

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """It does not listen."""

    async def release_streams(self) -> None:
        """It has none."""


ADA, BOB, EVE = (Client(f"local:{name}") for name in ("ada", "bob", "eve"))


async def known(_spec: ServerSpec) -> KnownServer | None:
    return KnownServer(1, "2025-11-25", "1.0", {"tools": {}})


async def use(servers: Running, client: Client) -> None:
    """A call as the gateway makes it: it wakes the server, and waits until it runs."""
    caller = Caller(key=client.key, link=client)
    servers.pool.client_connected(lambda: client)
    servers.pool.wake("one", caller)
    await servers.until(lambda: servers.state().status is not ServerStatus.STARTING)
    request = {"name": "add", "arguments": {"by": client.key}}
    assert await servers.pool.call("one", "tools/call", request, caller) == called("done")


def used_by(life: Life) -> list[str]:
    """The clients whose calls a process got, in their order."""
    calls = [message["params"] for message in life.sent if message.get("method") == "tools/call"]
    return [call["arguments"]["by"] for call in calls]


async def until_resting(servers: Running) -> None:
    await servers.until(lambda: servers.state().status is ServerStatus.RESTING)


@pytest.mark.parametrize("is_modern", [False, True])
async def test_each_client_has_a_process_of_its_own_of_a_server_that_they_must_not_share(is_modern: bool) -> None:
    server = FakeServer(is_modern=is_modern)
    ada, bob = replace(ADA, is_modern=is_modern), replace(BOB, is_modern=is_modern)
    async with running(APART, one=server, options=JOINED, recall=known) as servers:
        for client in (ada, bob, ada, bob):
            await use(servers, client)
        assert [used_by(life) for life in server.lives] == [[ADA.key] * 2, [BOB.key] * 2]


@pytest.mark.parametrize("session", Sharing)
@pytest.mark.parametrize("capabilities", [{}, ROOTS])
@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_client_alone_has_one_process(session: Sharing, capabilities: dict[str, Any], is_listed: bool) -> None:
    server = FakeServer()
    client = replace(ADA, capabilities=capabilities)
    spec, recall = replace(APART, session=session), known if is_listed else None
    async with running(spec, one=server, options=JOINED, recall=recall) as servers:
        servers.pool.client_connected(lambda: client)
        if not is_listed:
            await servers.until_up()
        await use(servers, client)
        await use(servers, client)
        assert [used_by(life) for life in server.lives] == [[ADA.key] * 2]
        # The server knows what its client declared, as without a gateway between them.
        if capabilities:
            server.life.say("roots/list", number=7)
            await until(lambda: any(message.get("id") == 7 for message in server.life.sent))
            [reply] = [message for message in server.life.sent if message.get("id") == 7 and "method" not in message]
            assert reply["result"] == {"roots": [{"uri": f"file:///{ADA.key}"}]}


async def test_clients_that_no_server_can_ask_share_the_others() -> None:
    server = FakeServer()
    async with running(replace(APART, session=Sharing.SHARED), one=server, options=JOINED, recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, client)
        servers.pool.client_left(ADA.key)
        await use(servers, BOB)
        assert [used_by(life) for life in server.lives] == [[ADA.key, BOB.key, BOB.key]]


async def test_a_session_that_belongs_to_a_client_is_not_used_by_one_that_cannot_be_asked() -> None:
    server = FakeServer()
    async with running(replace(APART, session=Sharing.SHARED), one=server, options=JOINED, recall=known) as servers:
        await use(servers, replace(ADA, capabilities=ROOTS))
        await use(servers, BOB)
        assert [used_by(life) for life in server.lives] == [[ADA.key], [BOB.key]]


async def test_all_clients_share_a_modern_server_which_asks_by_its_results() -> None:
    server = FakeServer(is_modern=True)
    async with running(replace(APART, session=Sharing.SHARED), one=server, options=JOINED, recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, replace(client, capabilities={"elicitation": {}}, is_modern=True))
        assert [used_by(life) for life in server.lives] == [[ADA.key, BOB.key]]


@pytest.mark.parametrize("left", [ADA, BOB])
async def test_the_process_of_a_client_that_has_left_ends_and_no_other_client_gets_it(left: Client) -> None:
    server = FakeServer()
    stays = BOB if left is ADA else ADA
    async with running(APART, one=server, options=JOINED, recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, client)
        ending = next(life for life in server.lives if used_by(life) == [left.key])
        servers.pool.client_left(left.key)
        await until(lambda: ending.has_ended)
        await use(servers, stays)
        # What clients see of the server stays: it runs for one of them.
        assert servers.state().status is ServerStatus.RUNNING
        await use(servers, EVE)
        assert sorted(used_by(life) for life in server.lives) == sorted([[left.key], [stays.key, stays.key], [EVE.key]])
        for client in (stays, EVE):
            servers.pool.client_left(client.key)
        await until_resting(servers)
        await until(lambda: all(life.has_ended for life in server.lives))


async def test_a_server_that_starts_with_the_gateway_starts_again_when_its_client_has_left() -> None:
    server = FakeServer()
    eager = replace(APART, start=Start.WITH_THE_GATEWAY)
    async with running(eager, one=server, options=JOINED) as servers:
        servers.pool.client_connected(lambda: ADA)
        await servers.until_up()
        await use(servers, ADA)
        servers.pool.client_left(ADA.key)
        await until(lambda: len(server.lives) == 2)
        await servers.until_up()
        await use(servers, BOB)
        assert [used_by(life) for life in server.lives] == [[ADA.key], [BOB.key]]


async def test_a_client_that_leaves_while_its_server_starts_leaves_no_process() -> None:
    server = FakeServer({"tools/list": None})
    async with running(APART, one=server, options=JOINED, recall=known) as servers:
        await until_resting(servers)
        calling = asyncio.create_task(use(servers, ADA))
        await server.until_received("tools/list")
        calling.cancel()
        servers.pool.client_left(ADA.key)
        del server.answers["tools/list"]
        asking = next(message for message in server.life.sent if message["method"] == "tools/list")
        server.life.peer.receive({"jsonrpc": "2.0", "id": asking["id"], "result": {"tools": server.tools}})
        await until(lambda: server.lives[0].has_ended)
        await use(servers, BOB)
        assert [used_by(life) for life in server.lives] == [[], [BOB.key]]


async def test_processes_of_clients_that_are_silent_end_and_start_again() -> None:
    server = FakeServer()
    options = replace(JOINED, idle_timeout=0.05)
    async with running(APART, one=server, options=options, recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, client)
        await until_resting(servers)
        await until(lambda: all(life.has_ended for life in server.lives))
        await use(servers, BOB)
        assert used_by(server.lives[-1]) == [BOB.key]


async def test_a_client_that_waits_for_an_answer_keeps_its_process_while_another_ones_ends() -> None:
    server = FakeServer({"tools/call": lambda params: None if params["arguments"]["by"] == ADA.key else called("done")})
    async with running(APART, one=server, options=replace(JOINED, idle_timeout=0.05), recall=known) as servers:
        calling = asyncio.create_task(use(servers, ADA))
        await server.until_received("tools/call")
        await use(servers, BOB)
        await until(lambda: server.lives[1].has_ended)
        assert [used_by(life) for life in server.lives] == [[ADA.key], [BOB.key]]
        assert not server.lives[0].has_ended
        calling.cancel()


async def test_more_clients_than_processes_are_told_so() -> None:
    server = FakeServer()
    async with running(APART, one=server, options=replace(JOINED, own_sessions=1), recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, client)
        with pytest.raises(ServerUnavailable, match="'one' could not be started for this client"):
            await use(servers, EVE)
        servers.pool.client_left(BOB.key)
        await until(lambda: server.lives[1].has_ended)
        await use(servers, EVE)


async def test_a_client_whose_own_process_died_gets_another_one() -> None:
    server = FakeServer()
    async with running(APART, one=server, options=JOINED, recall=known) as servers:
        for client in (ADA, BOB):
            await use(servers, client)
        server.lives[1].die()
        await until(lambda: server.lives[1].has_ended)
        await use(servers, BOB)
        await use(servers, ADA)
        assert [used_by(life) for life in server.lives] == [[ADA.key] * 2, [BOB.key], [BOB.key]]


@pytest.mark.slow
@pytest.mark.parametrize("capabilities", [{}, ROOTS])
async def test_clients_that_come_call_leave_and_pause_at_the_same_moment_never_share_a_process(
    capabilities: dict[str, Any],
) -> None:
    server = FakeServer()
    options = replace(JOINED, idle_timeout=0.002)
    chance = random.Random(5)

    async def live(servers: Running, number: int) -> None:
        client = Client(f"local:{number}", capabilities)
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            # Its process may be stopped at this moment; its next call starts another one.
            with contextlib.suppress(UpstreamError):
                await use(servers, client)
        servers.pool.client_left(client.key)

    async with running(APART, one=server, options=options, recall=known) as servers:
        for _ in range(100):
            numbers = [chance.randrange(1_000_000) for _ in range(5)]
            await asyncio.gather(*(live(servers, number) for number in numbers))
        assert all(len(set(used_by(life))) <= 1 for life in server.lives)
        await until_resting(servers)
        await until(lambda: all(life.has_ended for life in server.lives))
