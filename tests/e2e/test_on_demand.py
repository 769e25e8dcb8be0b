"""A gateway that knows its servers starts none of them: the first request that needs one does, of whatever kind."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WriteServers
from tests.e2e.raw_clients import LEGACY, MODERN, HttpClient, http_client
from tests.e2e.running import command, gateway_at
from tests.waiting import until

SERVER = Path(__file__).parents[1] / "servers" / "notes.py"
NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a call": ("tools/call", {"name": "call_tool", "arguments": {"tool_name": "write_note", "parameters": {}}}),
    "a prompt": ("prompts/get", {"name": "summarize"}),
    "a resource": ("resources/read", {"uri": "note://1"}),
    "a resource of a template": ("resources/read", {"uri": "note://of/monday"}),
    "a completion": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "note://of/{day}"}, "argument": {"name": "day", "value": "m"}},
    ),
}
LISTS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}


class World:
    """A server that leaves a file behind each time it starts, and a gateway that has seen it before."""

    def __init__(self, config: Path, folder: Path) -> None:
        self.config = config
        self.go = folder / "go"
        self.go.write_text("")
        self.started = folder / "started"
        self.waits, self.fails = folder / "waits", folder / "fails"
        """Files which, while they are there, keep the server from starting."""
        self.is_slow = folder / "slow"
        """While it is there, the server takes twenty seconds to start."""
        self.options = ("--database", folder / "catalog.db", "--encoder", "none", "--start-servers", "on demand")

    @property
    def starts(self) -> int:
        return len(self.started.read_text().splitlines()) if self.started.exists() else 0

    @asynccontextmanager
    async def gateway(self, era: str, *options: object) -> AsyncIterator[HttpClient]:
        async with gateway_at(self.config, *self.options, *options) as address, http_client(address, era) as client:
            yield client

    async def get_known(self) -> None:
        """Everything is listed once, and stored."""
        async with self.gateway(LEGACY) as client:
            await until(lambda: self.starts == 1)
            for method, key in LISTS.items():

                async def is_listed(method: str = method, key: str = key) -> bool:
                    return bool((await client.ask(method))["result"][key])

                await until(is_listed)
            await client.ask(*NEEDS["a call"])
        self.started.unlink()


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path) -> World:
    world = World(tmp_path / "mcp.json", tmp_path)
    slow = f"test -e {world.is_slow} && sleep 20; while test -e {world.waits}; do sleep 0.1; done"
    hinders = f"{slow}; test -e {world.fails} && echo no folder >&2 && exit 3"
    starts = f"echo started >> {world.started}; {hinders}; exec {sys.executable} {SERVER} {world.go}"
    world.config = write_servers({"lab": {"command": "sh", "args": ["-c", starts]}})
    return world


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_what_is_known_is_listed_and_found_without_a_process(world: World, era: str) -> None:
    await world.get_known()
    async with world.gateway(era) as client:
        for method, key in LISTS.items():
            assert (await client.ask(method))["result"][key]

        async def is_known() -> bool:
            asked = {"name": "find_tool", "arguments": {"tool_description": "write a note"}}
            text = (await client.ask("tools/call", asked))["result"]["content"][0]["text"]
            assert "write_note" in text
            # Its entry may still be compared with the one that was listed.
            return "tarting" not in text

        await until(is_known)
    assert world.starts == 0


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_whatever_needs_a_server_starts_it(world: World, era: str, need: str) -> None:
    await world.get_known()
    async with world.gateway(era) as client:
        answer = await client.ask(*NEEDS[need])
        assert not answer.get("error"), answer
        assert not answer["result"].get("isError"), answer
        assert world.starts == 1


async def test_a_subscription_starts_a_server_and_keeps_it(world: World) -> None:
    await world.get_known()
    async with world.gateway(LEGACY, "--idle-timeout", "0.3") as client:
        assert "error" not in await client.ask("resources/subscribe", {"uri": "note://1"})
        assert world.starts == 1
        assert "error" not in await client.ask("resources/unsubscribe", {"uri": "note://1"})
        await until(lambda: world_is_resting(world))


async def test_a_prompt_that_it_lists_now_is_announced_after_it_was_started(world: World) -> None:
    await world.get_known()
    world.go.write_text("shorten")
    async with world.gateway(LEGACY) as client:
        listed = await client.ask("prompts/list")
        assert [prompt["name"] for prompt in listed["result"]["prompts"]] == ["summarize"]
        await client.ask(*NEEDS["a call"])

        async def is_listed() -> bool:
            prompts = (await client.ask("prompts/list"))["result"]["prompts"]
            return [prompt["name"] for prompt in prompts] == ["shorten"]

        await until(is_listed)


async def test_a_server_that_nothing_uses_ends_and_the_next_call_starts_it_again(world: World) -> None:
    await world.get_known()
    async with world.gateway(MODERN, "--idle-timeout", "0.3") as client:
        for number in (1, 2):
            answer = await client.ask(*NEEDS["a call"])
            assert not answer["result"].get("isError"), answer
            assert world.starts == number
            await until(lambda: world_is_resting(world))


def world_is_resting(world: World) -> bool:
    """Whether no process of the server is there."""
    mark = str(world.go).encode()
    return not any(mark in _command_of(number) for number in _processes())


def _command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        # It has just ended.
        return b""


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


@pytest.mark.parametrize(("what", "said"), [("waits", "1 s"), ("fails", "no folder")])
async def test_a_server_that_does_not_start_any_more_says_why_and_is_called_again_when_it_does(
    world: World, what: str, said: str
) -> None:
    await world.get_known()
    hinders: Path = getattr(world, what)
    hinders.touch()
    async with world.gateway(MODERN, "--start-timeout", "1", "--restart-pause", "0.2") as client:
        answer = await client.ask(*NEEDS["a call"])
        assert answer["result"]["isError"]
        assert said in json.dumps(answer["result"])
        hinders.unlink()

        async def is_answered() -> bool:
            return not (await client.ask(*NEEDS["a call"]))["result"].get("isError")

        await until(is_answered)


async def test_a_server_that_takes_twenty_seconds_to_start_answers_the_call_that_started_it(world: World) -> None:
    await world.get_known()
    world.is_slow.write_text("")
    started = time.monotonic()
    async with world.gateway(LEGACY) as client, asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(client.ask(*NEEDS["a call"], number)) for number in ("first", "second")]
        await until(lambda: world.starts == 1)
        asked = {"name": "find_tool", "arguments": {"tool_description": "write a note"}}
        # Meanwhile the gateway answers everything else.
        for _ in range(20):
            found = await client.ask("tools/call", asked)
            assert "write_note" in found["result"]["content"][0]["text"]
        assert not any(call.done() for call in calls)
    assert time.monotonic() > started + 20
    for call in calls:
        assert "error" not in call.result()
        assert not call.result()["result"].get("isError"), call.result()
    assert world.starts == 1


async def test_a_command_without_a_gateway_starts_only_what_it_calls(world: World) -> None:
    await world.get_known()
    found = await command("find", "write a note", "--config", world.config, *world.options)
    assert "write_note" in found.out
    servers = await command("servers", "--json", "--config", world.config, *world.options)
    [server] = json.loads(servers.out)["servers"]
    assert (server["status"], server["tools"]) == ("starts when needed", 2)
    assert world.starts == 0
    called = await command("call", "write_note", "{}", "--config", world.config, *world.options)
    assert "written" in called.out
    assert world.starts == 1


async def test_an_entry_that_changed_is_listed_anew(world: World) -> None:
    await world.get_known()
    document = json.loads(world.config.read_text())
    document["mcpServers"]["lab"]["env"] = {"OTHER": "1"}
    world.config.write_text(json.dumps(document))
    async with world.gateway(MODERN):
        await until(lambda: world.starts == 1)


async def test_an_entry_or_a_setting_has_it_start_with_the_gateway(world: World) -> None:
    await world.get_known()
    async with world.gateway(MODERN, "--start-servers", "with the gateway"):
        await until(lambda: world.starts == 1)
    document = json.loads(world.config.read_text())
    document["mcpServers"]["lab"]["start"] = "with the gateway"
    world.config.write_text(json.dumps(document))
    async with world.gateway(MODERN):
        await until(lambda: world.starts == 2)
