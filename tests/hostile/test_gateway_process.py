"""Hostile answers to calls, as a client of a real gateway sees them: over HTTP in both eras, and on stdio.

Here every answer is serialized and parsed, unlike in tests where client and gateway share a process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from benchmarks.clients import PlainClient

from tests.hostile.case import HOSTILE, stdio_entry
from tests.hostile.deeds import STDIO
from tests.hostile.gateway import GatewayProcess, HttpWitness, Standing
from tests.hostile.inputs import INPUTS
from tests.hostile.mode import GOOD, FileMode
from tests.hostile.mutate import Mutator
from tests.hostile.stdio_witness import StdioWitness
from tests.hostile.witness import NAME, watching, witness_server

IN_CALLS = [
    shown for shown in INPUTS.values() if shown.at == "tools/call" and STDIO in shown.transports and not shown.heavy
]
_ATTEMPTS = 60
CALL = {"tool_name": "poke", "server_name": HOSTILE, "parameters": {}}


class Arena:
    """A gateway on HTTP and one on stdio, in front of the same two servers. The test controls one of these."""

    def __init__(self, folder: Path) -> None:
        self.mode = folder / "mode"
        FileMode.show(self.mode, GOOD)
        entries = {NAME: witness_server(), HOSTILE: stdio_entry(self.mode)}
        self.over_http = Standing(folder, entries)
        self.on_stdio = Standing(folder, entries, over_http=False)

    def shown(self) -> set[str]:
        return set(FileMode.log_of(self.mode).read_text(encoding="utf-8").splitlines())

    def end(self) -> None:
        self.over_http.end()
        self.on_stdio.end()


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    made = Arena(tmp_path_factory.mktemp("arena"))
    yield made
    made.end()


def _is_answer(message: dict[str, Any]) -> bool:
    return isinstance(message.get("result"), dict) or isinstance(message.get("error"), dict)


async def _called(client: PlainClient) -> str:
    """Call the hostile server. Returns what was wrong with the response, or nothing."""
    try:
        answer = await client.request(7, "tools/call", {"name": "call_tool", "arguments": CALL})
    except (httpx2.HTTPError, AssertionError, ValueError, LookupError) as error:
        return f"the call was not answered: {error!r}"[:500]
    return "" if answer.get("id") == 7 and _is_answer(answer) else f"answered with {json.dumps(answer)[:300]}"


async def _until_listed(client: PlainClient) -> None:
    """Wait until the hostile server is back: some inputs end it, and it must be up for the next one."""
    for _ in range(200):
        answer = await client.request(8, "tools/call", {"name": "list_tools", "arguments": {"server": HOSTILE}})
        if "poke" in json.dumps(answer):
            return
        await _pause()


async def _pause() -> None:
    await asyncio.sleep(0.1)


async def test_calls_to_a_hostile_server_are_answered_over_http_in_both_eras(arena: Arena) -> None:
    gateway = arena.over_http.gateway()
    problems: list[str] = []
    async with httpx2.AsyncClient(timeout=25) as http:
        witness = HttpWitness(http, gateway.url, is_modern=False)
        await witness.connect()
        assert await witness.until_up()
        clients = [PlainClient(http, gateway.url, is_modern=is_modern) for is_modern in (False, True)]
        for client in clients:
            await client.connect()
        async with watching(witness):
            for shown in IN_CALLS:
                # The mode is not set to good in between, because a hostile server would then exit.
                FileMode.show(arena.mode, shown.name)
                for _ in range(_ATTEMPTS):
                    # An input may end its server, so the next call may find it about to exit.
                    await _until_listed(clients[1])
                    wrong = await asyncio.gather(*(_called(client) for client in clients))
                    problems += [f"{shown.name}: {text}" for text in wrong if text]
                    if not gateway.is_alive or shown.name in arena.shown():
                        break
                    # Its tools are listed while it restarts, so a call may have found it down.
                    await _pause()
    problems += [f"the witness was not answered: {lost}" for lost in witness.lost[:3]]
    problems += await gateway.problems()
    assert problems == []
    # The hostile server sent every input; no call was only refused because the server was down.
    assert {shown.name for shown in IN_CALLS} - arena.shown() == set()


async def test_calls_to_a_hostile_server_are_answered_on_stdio(arena: Arena) -> None:
    gateway = arena.on_stdio.gateway()
    try:
        problems = await _called_on_stdio(arena, gateway)
        problems += await gateway.problems()
    finally:
        # The gateway must end first, because the event loop waits for the thread that reads its stdout.
        arena.on_stdio.end()
    assert problems == []


async def _called_on_stdio(arena: Arena, gateway: GatewayProcess) -> list[str]:
    witness = StdioWitness(gateway, Mutator(0))
    await witness.connect()
    assert await witness.until_up()
    problems: list[str] = []
    for shown in IN_CALLS:
        FileMode.show(arena.mode, shown.name)
        try:
            async with asyncio.timeout(20):
                await witness.ask("call_tool", CALL)
        except (TimeoutError, ConnectionError) as error:
            problems.append(f"{shown.name}: the call was not answered: {error!r}")
        if not gateway.is_alive:
            break
        await witness.call_once()
    return problems + [f"the witness was not answered: {lost}" for lost in witness.lost[:3]]
