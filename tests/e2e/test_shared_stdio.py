"""Clients on stdio that share a gateway: one set of servers, and each client its own session, whatever ends when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mcp_optimizer.runtime.sharing.places import CAN_CONTROL
from tests.conftest import WriteServers
from tests.e2e.raw_clients import LEGACY, MODERN, StdioClient, message, stdio_client
from tests.e2e.running import command
from tests.e2e.shared_gateways import PROGRAM, World, calling, count, gateways, is_running, made_world, note
from tests.waiting import until

NOW, UPDATED = "count://now", "notifications/resources/updated"

pytestmark = pytest.mark.skipif(not CAN_CONTROL, reason="this system has no sockets that belong to a user")


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with made_world(write_servers, tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_clients_share_one_gateway_and_one_server_until_the_last_has_left(world: World, era: str) -> None:
    async with world.client(era=era) as first:
        before = await note(first, "a")
        async with world.client(era=era) as second:
            assert (await note(second, "b")).split(" by ")[1] == before.split(" by ")[1]
            [gateway] = gateways()
            # The one that came first leaves first.
            assert first.process.stdin is not None
            first.process.stdin.close()
            assert await asyncio.wait_for(first.process.wait(), 20) == 0
            assert "c by" in await note(second, "c")
    assert world.written == ["started", "a", "b", "c"]
    await until(lambda: not is_running(gateway))
    server = int(before.split(" by ")[1].split()[0])
    await until(lambda: not is_running(server))
    assert gateways() == []


@pytest.fixture
def own(world: World, write_servers: WriteServers) -> World:
    """The same, and its clients must not share the server."""
    entry = json.loads(Path(world.config).read_text())["mcpServers"]["counting"]
    return World(write_servers({"counting": {**entry, "session": "own"}}), world.notes)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_clients_of_one_gateway_do_not_see_each_others_state_where_each_has_a_process(
    own: World, era: str
) -> None:
    async with own.client(era=era) as stays:
        async with own.client(era=era) as leaves:
            counts = [await count(client) for client in (stays, leaves, stays, leaves, leaves)]
            assert [number for number, _ in counts] == [1, 1, 2, 2, 3]
            assert len({process for _, process in counts}) == 2
            # None was started beside theirs.
            assert own.written == ["started"] * 2
            leaves.process.kill()
            await leaves.process.wait()
            vanished = counts[1][1]
        await until(lambda: not is_running(vanished))
        assert await count(stays) == (3, counts[0][1])
        async with own.client(era=era) as another:
            assert (await count(another))[0] == 1
        assert len(gateways()) == 1


async def test_the_status_of_a_shared_gateway_says_how_many_clients_it_has(world: World) -> None:
    async with world.client() as first, world.client() as second:
        for client in (first, second):
            await note(client, "a")
        asked = ("status", "--config", world.config)
        assert ": stdio for 2 clients, up " in (await command(*asked)).out
        [shown] = (await command(*asked, "--json")).json["gateways"]
        assert (shown["pid"], shown["clients"]) == (gateways()[0], 2)
    async with world.client("--alone") as client:
        await note(client, "a")
        await until(lambda: gateways() == [])
        [shown] = (await command(*asked, "--json")).json["gateways"]
        assert "clients" not in shown


async def test_people_see_which_server_each_client_has_for_itself(own: World) -> None:
    async with own.client() as first, own.client() as second:
        for client in (first, second):
            await count(client)
        shown = (await command("servers", "--config", own.config)).out
        assert "each client has its own: 2 running" in " ".join(shown.split())
        [row] = (await command("servers", "--config", own.config, "--json")).json["servers"]
        assert (row["sessions"], row["each_client_has_its_own"]) == (2, True)


async def watch(client: StdioClient) -> None:
    """Subscribe to what the server counts."""
    if client.era == LEGACY:
        await client.ask("resources/subscribe", {"uri": NOW})
        return
    await client.send(message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [NOW]}}, 0, MODERN))
    await said_until(client, lambda said: "notifications/subscriptions/acknowledged" in said)


async def said_until(client: StdioClient, is_all: Callable[[list[str]], bool]) -> list[str]:
    """The methods of what the client is told, and the ids of its answers."""
    said: list[str] = []
    assert client.process.stdout is not None
    async with asyncio.timeout(60):
        while not is_all(said):
            line = json.loads(await client.process.stdout.readline())
            said.append(line.get("method") or line["id"])
    return said


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_client_hears_of_changes_in_the_process_that_it_has_for_itself(own: World, era: str) -> None:
    async with own.client(era=era) as first, own.client(era=era) as second:
        for client in (first, second):
            await count(client)
            await watch(client)
        counting = message("tools/call", {"name": "call_tool", "arguments": {"tool_name": "count"}}, "counts", era)
        for client in (second, first, second):
            await client.send(counting)
            said = await said_until(client, lambda said: {UPDATED, "counts"} <= set(said))
            # Another client's change would have been before it.
            assert said.count(UPDATED) == 1


async def test_the_state_of_a_client_that_left_first_is_for_nobody(own: World) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(own.client())
        _, process = await count(first)
        second = await stack.enter_async_context(own.client())
        assert first.process.stdin is not None
        first.process.stdin.close()
        assert await asyncio.wait_for(first.process.wait(), 20) == 0
        await until(lambda: not is_running(process))
        assert [(await count(second))[0] for _ in range(3)] == [1, 2, 3]


async def test_a_client_of_a_killed_gateway_gets_its_answers_from_another_one_and_nothing_is_done_twice(
    world: World,
) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(world.client()) for _ in range(3)]
        for number, client in enumerate(clients):
            await note(client, f"before {number}")
        # One of them is in the middle of a call.
        await clients[0].send(calling("interrupted", "slow", seconds=60))
        await until(lambda: "interrupted" in world.written)
        [gateway] = gateways()
        os.kill(gateway, signal.SIGKILL)
        after = await asyncio.gather(*(note(client, f"after {n}") for n, client in enumerate(clients) if n))
        assert len({said.split(" by ")[1] for said in after}) == 1
        lost = await clients[0].receive()
        assert lost["id"] == "slow"
        assert "not known" in lost["error"]["message"]
        assert "after 0" in await note(clients[0], "after 0")
        assert len(gateways()) == 1
        assert gateways() != [gateway]
    said = [line for line in world.written if line != "started"]
    assert sorted(said) == sorted(["interrupted", *(f"{when} {n}" for when in ("before", "after") for n in range(3))])


async def test_a_gateway_that_is_asked_to_stop_leaves_what_clients_say_to_the_next_one(world: World) -> None:
    async with world.client() as client:
        await note(client, "before")
        [gateway] = gateways()
        os.kill(gateway, signal.SIGTERM)
        assert "after by" in await note(client, "after")
        assert [line for line in world.written if line != "started"] == ["before", "after"]


async def test_what_a_client_asked_for_once_holds_at_the_gateway_that_takes_over(world: World) -> None:
    async with world.client(era=MODERN) as client:
        wanted = {"notifications": {"toolsListChanged": True}}
        await client.send(message("subscriptions/listen", wanted, "listening", MODERN))
        assert json.loads(await _next_line(client))["method"] == "notifications/subscriptions/acknowledged"
        os.kill(gateways()[0], signal.SIGKILL)
        assert json.loads(await _next_line(client))["method"] == "notifications/subscriptions/acknowledged"
        assert (await client.ask("tools/list"))["result"]["tools"]


async def _next_line(client: StdioClient) -> bytes:
    assert client.process.stdout is not None
    return await asyncio.wait_for(client.process.stdout.readline(), 60)


async def test_a_client_whose_process_vanishes_ends_for_the_gateway_and_for_no_other_client(world: World) -> None:
    async with world.client() as stays, world.client() as vanishes:
        await note(vanishes, "a")
        vanishes.process.kill()
        await vanishes.process.wait()
        assert "b by" in await note(stays, "b")
        assert len(gateways()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_client_that_ends_its_process_gets_the_answer_that_it_waits_for(world: World, number: int) -> None:
    async with world.client() as client:
        await note(client, "a")
        await client.send(calling("b", "slow", seconds=0.5))
        await until(lambda: "b" in world.written)
        client.process.send_signal(number)
        assert "b by" in (await client.receive())["result"]["content"][0]["text"]
        assert await asyncio.wait_for(client.process.wait(), 60) == 0


async def test_a_client_that_vanishes_in_the_middle_of_a_call_leaves_the_others_their_server(world: World) -> None:
    async with world.client() as stays:
        before = await note(stays, "a")
        command = [*PROGRAM, "serve", "--config", str(world.config), "--encoder", "none"]
        (reads, says), (hears, writes) = os.pipe(), os.pipe()
        vanishes = await asyncio.create_subprocess_exec(*command, stdin=reads, stdout=writes)
        os.close(reads)
        os.close(writes)
        os.write(says, json.dumps(calling("unheard", "slow", era=MODERN, seconds=1)).encode() + b"\n")
        await until(lambda: "unheard" in world.written)
        # Both ends of its pipes at once, as when it is killed.
        os.close(says)
        os.close(hears)
        assert await asyncio.wait_for(vanishes.wait(), 20) == 0
        assert (await note(stays, "b")).split(" by ")[1] == before.split(" by ")[1]
        assert len(gateways()) == 1


async def test_clients_are_served_where_files_cannot_grow(world: World) -> None:
    """A full disk: neither the database nor a journal takes more than a few kilobytes."""
    limits = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192)); "
    there = [sys.executable, "-c", f"{limits} os.execv(sys.executable, {PROGRAM} + sys.argv[1:])"]
    options = ("--encoder", "none")
    async with stdio_client(world.config, *options, program=there) as first:
        assert "a by" in await note(first, "a")
        async with stdio_client(world.config, *options, program=there) as second:
            for _ in range(100):
                assert "result" in await second.ask("tools/list")
            assert "b by" in await note(second, "b")


async def test_clients_are_served_where_no_home_can_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/dev/null/home")
    async with world.client() as first, world.client() as second:
        assert (await note(first, "a")).split(" by ")[1] == (await note(second, "b")).split(" by ")[1]
