"""A gateway whose files are edited while clients call: what did not change goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import COMMAND, gateway_at, http_gateway, over_stdio, until_found
from tests.waiting import until

OPTIONS = ("--database", "none", "--encoder", "none")
CLIENTS = 4
NOTICED = 1.3
"""Seconds within which the gateway notices an edit."""


async def say(client: Client, value: str) -> None:
    result = await client.call_tool("call_tool", {"tool_name": "steady__echo", "parameters": {"value": value}})
    assert not result.is_error, result.content
    assert value in str(result.content)


async def calling(clients: list[Client], is_over: Callable[[], bool]) -> list[tuple[float, float]]:
    """When each call to the unchanged server began, and how long it took."""
    made: list[tuple[float, float]] = []

    async def call(client: Client, number: int) -> None:
        for turn in range(1_000_000):
            if is_over():
                return
            began = time.monotonic()
            await say(client, f"{number}-{turn}")
            made.append((began, time.monotonic() - began))

    await asyncio.gather(*(call(client, number) for number, client in enumerate(clients)))
    return made


def write(path: Path, servers: dict[str, Any]) -> None:
    other = path.with_name("temporary.json")
    other.write_text(json.dumps({"mcpServers": servers}))
    other.replace(path)


async def waited(seconds: float) -> None:
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > seconds, timeout=seconds + 10)


async def edited(path: Path, times: int, began: list[float]) -> None:
    """Servers come, change, go and are broken, one edit after the other; `steady` stays. Notes when each began."""
    steady = plain_server("steady", "--tools", 12)
    for number in range(times):
        kinds = [
            {"busy": plain_server("busy", "--tools", 10 + number % 7)},
            {"busy": plain_server("busy", "--tools", 12), f"new{number}": plain_server("new", "--tools", 12)},
            {},
            {"broken": {"command": f"no-such-command-{number}"}},
        ]
        began.append(time.monotonic())
        write(path, {**kinds[number % len(kinds)], "steady": steady})
        await waited(NOTICED)
        if number % 5 == 4:
            path.write_text('{"mcpServers": {')
            await waited(NOTICED / 2)


@asynccontextmanager
async def clients_of(config: Path, kind: str) -> AsyncIterator[list[Client]]:
    if kind == "stdio":
        async with over_stdio(config, *OPTIONS) as client:
            yield [client] * CLIENTS
        return
    async with gateway_at(config, *OPTIONS) as address, four_clients(address) as clients:
        yield clients


@asynccontextmanager
async def four_clients(address: str) -> AsyncIterator[list[Client]]:
    async with Client(address) as one, Client(address) as two, Client(address) as three, Client(address) as four:
        yield [one, two, three, four]


async def compared(config: Path, kind: str, edits: int) -> None:
    async with clients_of(config, kind) as clients:
        await until_found(clients[0], "say something back", "echo")
        for client in clients:
            await say(client, "first")
        quiet_until = time.monotonic() + 3
        quiet = await calling(clients, lambda: time.monotonic() > quiet_until)
        began: list[float] = []
        editing = asyncio.create_task(edited(config, edits, began))
        busy = await calling(clients, editing.done)
        await editing
    usual = max(took for _, took in quiet)
    longest = defaultdict[int, float](float)
    for at, took in busy:
        edit = bisect(began, at)
        longest[edit] = max(longest[edit], took)
    *_, second, first = sorted(longest.values())
    print(
        f"\n{kind}: {len(quiet):,} calls without edits, longest {usual * 1_000:.0f} ms; {len(busy):,} calls "
        f"during {edits} edits, longest {first * 1_000:.0f} ms, of another edit {second * 1_000:.0f} ms"
    )
    # Servers that start share the processors with everything else; a call that had to wait for one would take longer.
    # Most edits start one, so that a single long call was a pause of the machine.
    assert second < usual + 1.0


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"steady": plain_server("steady", "--tools", 12)})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_no_call_to_an_unchanged_server_fails_or_waits_while_others_are_edited(config: Path, kind: str) -> None:
    await compared(config, kind, 6)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_hundred_edits_disturb_no_call_to_an_unchanged_server(config: Path, kind: str) -> None:
    await compared(config, kind, 100)


async def test_a_removed_server_and_its_tools_are_gone_and_a_broken_edit_changes_nothing(config: Path) -> None:
    async with over_stdio(config, *OPTIONS) as client:
        await until_found(client, "perform action number 1 of steady", "steady_action_1")
        config.write_text("{")
        write(config, {"other": plain_server("other", "--tools", 12)})
        await until_found(client, "perform action number 1 of other", "other_action_1")
        gone = await client.call_tool("call_tool", {"tool_name": "steady_action_1", "parameters": {}})
        assert gone.is_error
        assert "Unknown tool 'steady_action_1'" in str(gone.content)


async def test_clients_are_told_when_an_edit_changes_the_tools(config: Path) -> None:
    told = asyncio.Event()

    async def on_message(message: Any) -> None:
        if "list_changed" in str(getattr(message, "method", message)):
            told.set()

    async with (
        gateway_at(config, *OPTIONS, "--mode", "transparent") as address,
        Client(address, mode="legacy", message_handler=on_message) as client,
    ):
        await until(lambda: listed(client, "steady_action_1"))
        told.clear()
        write(config, {"other": plain_server("other", "--tools", 12)})
        await asyncio.wait_for(told.wait(), 15)
        await until(lambda: listed(client, "other_action_1"), timeout=15)
        assert not await listed(client, "steady_action_1")


async def listed(client: Client, tool: str) -> bool:
    return tool in [one.name for one in (await client.list_tools(cache_mode="bypass")).tools]


async def test_sighup_reads_the_files_that_nobody_watches(config: Path) -> None:
    async with http_gateway(config, *OPTIONS, "--no-reload") as (address, process), Client(address) as client:
        await until_found(client, "say something back", "echo")
        write(config, {"other": plain_server("other", "--tools", 12)})
        await waited(NOTICED)
        await say(client, "still there")
        process.send_signal(signal.SIGHUP)
        await until_found(client, "perform action number 1 of other", "other_action_1")
        assert process.returncode is None


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
async def test_a_gateway_whose_terminal_is_closed_ends(config: Path) -> None:
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--config",
        str(config),
        "--http",
        "127.0.0.1:0",
        *OPTIONS,
        stdin=theirs,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readline(), 20)
    os.close(theirs)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert await asyncio.wait_for(process.wait(), 20) == 0
