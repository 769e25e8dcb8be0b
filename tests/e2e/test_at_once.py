"""Lists are answered at once whatever servers do, and what servers had is found, and called, while they start again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WriteServers
from tests.e2e.raw_clients import HELLO, LEGACY, MODERN, http_client, message, stdio_client
from tests.e2e.running import WARM, gateway_at
from tests.waiting import until

SERVER = Path(__file__).parents[1] / "servers" / "notes.py"
AT_ONCE = 4.0
"""Seconds for an answer on a busy machine. It takes a hundredth of that, and took ten seconds."""
PATIENCE = 60
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LISTEN = {"notifications": {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}}
LISTS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@dataclass(frozen=True)
class World:
    """A server that says nothing until it may, and one that never does."""

    config: Path
    go: Path
    database: Path

    @property
    def options(self) -> tuple[object, ...]:
        return ("--database", self.database, "--encoder", "none")

    def hush(self) -> None:
        self.go.unlink()

    def speak(self, prompt: str = "") -> None:
        self.go.write_text(prompt)


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path) -> World:
    go = tmp_path / "go"
    entries = {name: {"command": sys.executable, "args": [str(SERVER), str(tmp_path / name)]} for name in ("go", "no")}
    return World(write_servers({"lab": entries["go"], "hangs": entries["no"]}), go, tmp_path / "catalog.db")


class Talk:
    """A client that reads every message, notifications too."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.notices: list[str] = []

    async def send(self, *messages: dict[str, Any]) -> None:
        self._stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        await self._stdin.drain()

    async def next(self, seconds: float = AT_ONCE) -> dict[str, Any]:
        line = await asyncio.wait_for(self._stdout.readline(), seconds)
        assert line, "the gateway ended"
        received: dict[str, Any] = json.loads(line)
        self.notices.append(received.get("method", ""))
        return received

    async def answers(self, *messages: dict[str, Any], seconds: float = AT_ONCE) -> list[dict[str, Any]]:
        """Send these together, and read until each is answered."""
        await self.send(*messages)
        wanted, found = [one["id"] for one in messages], dict[int, dict[str, Any]]()
        while len(found) < len(wanted):
            received = await self.next(seconds)
            if received.get("method") == ACKNOWLEDGED:
                found[received["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]] = received
            elif "id" in received and "method" not in received:
                found[received["id"]] = received
        return [found[number] for number in wanted]


@asynccontextmanager
async def talk(world: World, *options: object) -> AsyncIterator[Talk]:
    process = await asyncio.create_subprocess_exec(
        *WARM,
        "serve",
        "--config",
        str(world.config),
        *map(str, (*world.options, *options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Talk(process)
    finally:
        process.kill()
        await process.wait()


def modern(method: str, number: int, **params: Any) -> dict[str, Any]:
    return message(method, params, number, MODERN)


def legacy(method: str, number: int, **params: Any) -> dict[str, Any]:
    return message(method, params, number)


Opening = list[list[dict[str, Any]]]
"""What a client sends before it waits for all answers, step by step."""

SHAKE: Opening = [[legacy("initialize", 0, **HELLO)]]
OPENINGS: dict[str, Opening] = {
    "claude": [
        [modern("server/discover", 0)],
        [modern("subscriptions/listen", 1, **LISTEN)],
        [modern("server/discover", 2), modern("prompts/list", 3), modern("resources/list", 4), modern("tools/list", 5)],
    ],
    "claude-late": [
        [modern("server/discover", 0), legacy("initialize", 1, **HELLO)],
        [legacy("tools/list", 2), legacy("prompts/list", 3), legacy("resources/list", 4)],
    ],
    "copilot": [
        [modern("server/discover", 0)],
        [modern("subscriptions/listen", 1, **LISTEN)],
        [modern("tools/list", 2)],
    ],
    "codex": [*SHAKE, [legacy("tools/list", 1)]],
    "gemini": [*SHAKE, [legacy("prompts/list", 1)], [legacy("tools/list", 2)]],
    "qwen": [*SHAKE, [legacy("prompts/list", 1), legacy("resources/list", 2), legacy("tools/list", 3)]],
}


@pytest.mark.parametrize("client", OPENINGS)
async def test_every_opening_is_answered_at_once_while_no_server_says_a_word(world: World, client: str) -> None:
    async with talk(world) as talking:
        for number, step in enumerate(OPENINGS[client]):
            answers = await talking.answers(*step, seconds=PATIENCE if number == 0 else AT_ONCE)
            for asked, answer in zip(step, answers, strict=True):
                assert "error" not in answer, answer
                if asked["method"] == "tools/list":
                    assert "find_tool" in [tool["name"] for tool in answer["result"]["tools"]]
                if (key := LISTS.get(asked["method"])) is not None:
                    assert answer["result"][key] == []


async def test_a_client_that_gave_up_waiting_for_the_answer_can_shake_hands_with_a_loaded_gateway(world: World) -> None:
    async with talk(world) as talking:
        await talking.answers(modern("server/discover", 0), seconds=PATIENCE)
        # A line that is no message is answered by the loaded gateway only.
        await talking.send({"jsonrpc": "1.0"})
        assert "error" in await talking.next(PATIENCE)
        await talking.answers(modern("server/discover", 1))
        [opened] = await talking.answers(legacy("initialize", 2, **HELLO))
        assert opened["result"]["serverInfo"]["name"] == "mcp-optimizer"
        [listed] = await talking.answers(legacy("tools/list", 3))
        assert listed["result"]["tools"]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_what_a_server_has_is_announced_when_it_is_up(world: World, era: str) -> None:
    said = legacy if era == LEGACY else modern
    async with talk(world) as talking:
        if era == LEGACY:
            await talking.answers(*SHAKE[0], seconds=PATIENCE)
            await talking.send(INITIALIZED)
        else:
            await talking.answers(modern("subscriptions/listen", 0, **LISTEN), seconds=PATIENCE)
        [before] = await talking.answers(said("prompts/list", 1))
        assert before["result"]["prompts"] == []
        world.speak()
        while "notifications/prompts/list_changed" not in talking.notices:
            await talking.next(PATIENCE)
        [after] = await talking.answers(said("prompts/list", 2), seconds=PATIENCE)
        assert [prompt["name"] for prompt in after["result"]["prompts"]] == ["summarize"]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_over_http_lists_are_answered_at_once_too(world: World, era: str) -> None:
    async with gateway_at(world.config, *world.options) as address, http_client(address, era) as client:
        for method in ("tools/list", *LISTS):
            assert "result" in await asyncio.wait_for(client.ask(method), AT_ONCE)


def call(tool: str, number: int, **arguments: Any) -> dict[str, Any]:
    return legacy("tools/call", number, name=tool, arguments=arguments)


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


FIND = {"tool_description": "write a note into the notebook"}


async def listed_once(world: World) -> None:
    """A first start, after which the catalog knows what one server lists."""
    world.speak()
    async with stdio_client(world.config, *world.options) as client:

        async def is_found() -> bool:
            found = await client.exchange(call("find_tool", 1, **FIND))
            return "write_note" in text_of(found) and "Still starting: lab" not in text_of(found)

        await until(is_found, timeout=PATIENCE)
        assert "written" in text_of(await client.exchange(call("call_tool", 2, tool_name="write_note")))
        for number, method in enumerate(LISTS, 3):
            assert (await client.exchange(legacy(method, number)))["result"][LISTS[method]]
        assert client.process.stdin is not None
        client.process.stdin.close()
        await asyncio.wait_for(client.process.wait(), PATIENCE)
    world.hush()


async def test_known_tools_are_found_while_their_server_starts_and_a_call_waits_for_it(world: World) -> None:
    await listed_once(world)
    async with talk(world, "--start-servers", "with the gateway") as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        [found] = await talking.answers(call("find_tool", 1, **FIND), seconds=PATIENCE)
        assert text_of(found).startswith("write_note(")
        assert "Still starting: lab. A call waits for it." in text_of(found)
        assert "not searched yet: hangs" in text_of(found)
        await talking.send(call("call_tool", 2, tool_name="write_note", parameters={}))
        [listed] = await talking.answers(call("list_tools", 3, server="lab"))
        assert "write_note" in text_of(listed)
        world.speak()
        while (answer := await talking.next(PATIENCE)).get("id") != 2:
            assert "id" not in answer or "method" in answer
        assert "written" in text_of(answer)


async def test_all_tools_are_listed_at_once_as_they_were(world: World) -> None:
    await listed_once(world)
    async with talk(world, "--mode", "transparent") as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        [listed] = await talking.answers(legacy("tools/list", 1))
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["crash", "write_note"]
        await talking.send(call("write_note", 2))
        world.speak()
        while (answer := await talking.next(PATIENCE)).get("id") != 2:
            pass
        assert "written" in text_of(answer)


async def test_tools_that_were_listed_are_announced_as_gone_when_their_server_does_not_start(world: World) -> None:
    await listed_once(world)
    async with talk(world, "--mode", "transparent", "--start-timeout", 5) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        await talking.send(INITIALIZED)
        [listed] = await talking.answers(legacy("tools/list", 1))
        assert listed["result"]["tools"]
        while "notifications/tools/list_changed" not in talking.notices:
            await talking.next(PATIENCE)


async def test_after_a_crash_tools_are_found_and_called_again_without_a_denial(world: World) -> None:
    world.speak()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        [wrote] = await talking.answers(call("call_tool", 1, tool_name="lab__write_note"), seconds=PATIENCE)
        assert "written" in text_of(wrote)
        [crashed] = await talking.answers(call("call_tool", 2, tool_name="crash"), seconds=PATIENCE)
        assert crashed["result"]["isError"]
        world.hush()
        [found] = await talking.answers(call("find_tool", 3, **FIND), seconds=PATIENCE)
        assert "write_note" in text_of(found)
        assert "No tool fits" not in text_of(found)
        await talking.send(call("call_tool", 4, tool_name="write_note"))
        world.speak()
        while (answer := await talking.next(PATIENCE)).get("id") != 4:
            pass
        assert "written" in text_of(answer)


SUMMARIZE, NOTE, DAY = ("summarize",), ("note://1",), ("note://of/{day}",)


async def names_in(talking: Talk, first: int = 10) -> list[tuple[str, ...]]:
    """The names of all prompts, resources and templates, asked for together."""
    answers = await talking.answers(*(legacy(method, first + number) for number, method in enumerate(LISTS)))
    keys = {"prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
    return [
        tuple(entry[name] for entry in one["result"][key])
        for one, (key, name) in zip(answers, keys.items(), strict=True)
    ]


async def is_stored(world: World) -> None:
    """Wait until a first start has stored what the server lists."""

    def rows() -> int:
        with contextlib.closing(sqlite3.connect(world.database)) as database:
            query = "SELECT count(*) FROM server_list JOIN mcpserver ON id = mcpserver_id WHERE name = 'lab'"
            return int(database.execute(f"{query} AND kind <> 'server' AND entries <> '[]'").fetchone()[0])

    await until(lambda: rows() == len(LISTS), timeout=PATIENCE)


async def test_at_a_first_start_lists_have_the_good_server_and_give_the_hanging_one_two_seconds(world: World) -> None:
    world.speak()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        began = time.monotonic()
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        assert time.monotonic() - began < 2 + AT_ONCE
        # Once: whoever asks again is not held up.
        began = time.monotonic()
        assert await names_in(talking, 20) == [SUMMARIZE, NOTE, DAY]
        assert time.monotonic() - began < 1.5
        await is_stored(world)
    world.hush()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        # Whatever is answered by the loaded gateway only.
        await talking.answers(call("list_tools", 1), seconds=PATIENCE)
        began = time.monotonic()
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        assert time.monotonic() - began < 1.5


async def test_a_client_that_asks_once_before_a_slow_server_is_up_sees_its_prompts_at_the_next_start(
    world: World,
) -> None:
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert await names_in(talking) == [(), (), ()]
        world.speak()
        await is_stored(world)
    world.hush()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]


ASKED: dict[str, dict[str, Any]] = {
    "prompts/get": {"name": "summarize"},
    "resources/read": {"uri": "note://1"},
    "resources/subscribe": {"uri": "note://1"},
    "completion/complete": {
        "ref": {"type": "ref/resource", "uri": "note://of/{day}"},
        "argument": {"name": "day", "value": "m"},
    },
}


async def test_what_is_listed_of_a_starting_server_is_answered_when_it_is_up(world: World) -> None:
    await listed_once(world)
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        await talking.send(INITIALIZED)
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        asked = [
            *(legacy(method, number, **params) for number, (method, params) in enumerate(ASKED.items(), 1)),
            legacy("resources/read", 5, uri="note://of/monday"),
            legacy("prompts/get", 6, name="lab__summarize"),
        ]
        await talking.send(*asked)
        [pong] = await talking.answers(legacy("ping", 7))
        assert "result" in pong
        # Longer than any of them waits for a server that is not known to be meant.
        assert await nothing_is_answered(talking, seconds=11)
        world.speak()
        answers = dict[int, dict[str, Any]]()
        while len(answers) < len(asked):
            received = await talking.next(PATIENCE)
            if "id" in received:
                answers[received["id"]] = received
        assert [one for one in answers.values() if "result" not in one] == []
        assert answers[4]["result"]["completion"]["values"] == ["monday"]
        assert answers[5]["result"]["contents"][0]["text"] == "a note"


async def nothing_is_answered(talking: Talk, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while "id" not in await talking.next(PATIENCE):
                pass
            return False
    return True


async def test_what_was_listed_is_announced_as_gone_when_the_server_does_not_start(world: World) -> None:
    await listed_once(world)
    async with talk(world, "--start-timeout", 5) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        await talking.send(INITIALIZED)
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        [refused] = await talking.answers(legacy("prompts/get", 1, name="summarize"), seconds=PATIENCE)
        assert "error" in refused
        wanted = {"notifications/prompts/list_changed", "notifications/resources/list_changed"}
        while not wanted <= set(talking.notices):
            await talking.next(PATIENCE)
        assert await names_in(talking, 20) == [(), (), ()]


async def test_a_server_that_comes_up_with_another_list_announces_it_and_the_next_start_knows_it(world: World) -> None:
    await listed_once(world)
    async with talk(world, "--start-servers", "with the gateway") as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        await talking.send(INITIALIZED)
        assert (await names_in(talking))[0] == SUMMARIZE
        world.speak("translate")
        while "notifications/prompts/list_changed" not in talking.notices:
            await talking.next(PATIENCE)

        async def is_new() -> bool:
            return (await names_in(talking, 20))[0] == ("translate",)

        await until(is_new, timeout=PATIENCE)
        await until(lambda: "translate" in stored_prompts(world), timeout=PATIENCE)
    world.hush()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert (await names_in(talking))[0] == ("translate",)


def stored_prompts(world: World) -> str:
    with contextlib.closing(sqlite3.connect(world.database)) as database:
        rows = database.execute("SELECT entries FROM server_list WHERE kind = 'prompts' ORDER BY entries").fetchall()
    return str(rows)


async def test_an_entry_that_changed_is_another_server_of_which_nothing_is_listed(world: World) -> None:
    await listed_once(world)
    entries = json.loads(world.config.read_text())
    entries["mcpServers"]["lab"]["args"].append("more")
    world.config.write_text(json.dumps(entries))
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert await names_in(talking) == [(), (), ()]


async def test_after_a_crash_prompts_are_listed_and_got_without_a_denial(world: World) -> None:
    world.speak()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        await talking.answers(call("call_tool", 1, tool_name="crash"), seconds=PATIENCE)
        world.hush()
        assert await names_in(talking, 20) == [SUMMARIZE, NOTE, DAY]
        await talking.send(legacy("prompts/get", 2, name="summarize"))
        world.speak()
        while (answer := await talking.next(PATIENCE)).get("id") != 2:
            pass
        assert answer["result"]["messages"]


async def test_a_client_can_listen_for_a_resource_of_a_starting_server(world: World) -> None:
    await listed_once(world)
    async with talk(world) as talking:
        await talking.answers(modern("tools/list", 0), seconds=PATIENCE)
        await talking.answers(modern("resources/list", 1), seconds=PATIENCE)
        await talking.send(modern("subscriptions/listen", 2, notifications={"resourceSubscriptions": ["note://1"]}))
        await talking.answers(modern("tools/list", 3))
        assert ACKNOWLEDGED not in talking.notices
        world.speak()
        while (received := await talking.next(PATIENCE)).get("method") != ACKNOWLEDGED:
            pass
        assert received["params"]["notifications"] == {"resourceSubscriptions": ["note://1"]}


async def test_a_subscription_can_be_ended_while_its_server_restarts(world: World) -> None:
    world.speak()
    async with talk(world) as talking:
        await talking.answers(*SHAKE[0], seconds=PATIENCE)
        assert await names_in(talking) == [SUMMARIZE, NOTE, DAY]
        await talking.answers(legacy("resources/subscribe", 1, uri="note://1"), seconds=PATIENCE)
        world.hush()
        await talking.answers(call("call_tool", 2, tool_name="crash"), seconds=PATIENCE)
        [ended] = await talking.answers(legacy("resources/unsubscribe", 3, uri="note://1"), seconds=15)
        assert ended["result"] == {}
