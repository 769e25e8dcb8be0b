"""Clients on stdio that share a gateway: one set of servers, and each client its own session, whatever ends when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.runtime.sharing import wire
from mcp_optimizer.runtime.sharing.client_process import SOCKET_PREFIX, hello
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, made_folder, sockets_named
from mcp_optimizer.runtime.sharing.wire import ProcessLink
from tests.conftest import WriteServers
from tests.e2e.raw_clients import LEGACY, MODERN, StdioClient, message, stdio_client
from tests.e2e.running import command
from tests.waiting import until

pytestmark = pytest.mark.skipif(not CAN_CONTROL, reason="this system has no sockets that belong to a user")

COUNTING = Path(__file__).parents[1] / "servers" / "counting.py"
PROGRAM = [sys.executable, "-m", "mcp_optimizer_gateway"]


class World:
    """A server that writes down its starts and calls."""

    def __init__(self, config: Path, notes: Path) -> None:
        self.config = config
        self.notes = notes

    @property
    def written(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @asynccontextmanager
    async def client(self, *options: object, era: str = LEGACY) -> AsyncIterator[StdioClient]:
        options = ("--encoder", "none", *options)
        async with stdio_client(self.config, *options, era=era, program=PROGRAM) as client:
            yield client


@pytest.fixture(autouse=True)
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users; other tests use a gateway of their own."""
    monkeypatch.delenv("MCP_OPTIMIZER_SHARED")


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path) -> Iterator[World]:
    notes = tmp_path / "notes"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(COUNTING), str(notes)]}
    yield World(write_servers({"counting": entry}), notes)
    for gateway in gateways():
        with contextlib.suppress(ProcessLookupError):
            os.kill(gateway, signal.SIGKILL)


def gateways() -> list[int]:
    """The process ids of the gateways at which clients can join."""
    folder = made_folder(os.environ)
    assert folder is not None
    found = sockets_named(lambda name: name.startswith(SOCKET_PREFIX), [folder])
    return [process for path in found if is_running(process := int(path.stem.removeprefix(SOCKET_PREFIX)))]


def calling(text: str, number: Any = "witness", era: str = LEGACY, **arguments: Any) -> dict[str, Any]:
    given = {"tool_name": "note", "parameters": {"text": text, **arguments}}
    return message("tools/call", {"name": "call_tool", "arguments": given}, number, era)


async def note(client: StdioClient, text: str) -> str:
    """What the server answers: its own process is part of it."""
    answer = await client.exchange(calling(text, era=client.era))
    said: str = answer["result"]["content"][0]["text"]
    return said


async def count(client: StdioClient) -> tuple[int, int]:
    """How often the server was called to count, and its process."""
    answer = await client.exchange(
        message("tools/call", {"name": "call_tool", "arguments": {"tool_name": "count"}}, "counts", client.era)
    )
    number, process = answer["result"]["content"][0]["text"].split(" by ")
    return int(number), int(process)


def is_running(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return False


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


async def test_other_settings_and_another_folder_get_a_gateway_of_their_own(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with world.client() as first, world.client("--find-limit", "3") as second:
        assert (await note(first, "a")).split(" by ")[1] != (await note(second, "b")).split(" by ")[1]
        assert len(gateways()) == 2
        moves = f"import os, sys; os.chdir({str(elsewhere)!r}); os.execv(sys.executable, {PROGRAM} + sys.argv[1:])"
        there = [sys.executable, "-c", moves]
        async with stdio_client(world.config, "--encoder", "none", program=there) as third:
            assert (await note(third, "c")).endswith(str(elsewhere))
            assert len(gateways()) == 3


HAS_OTHER = [
    f"export {name}=/dev/null/another" for name in ("HOME", "PATH", "TZ", "https_proxy", "MY_KEY", "XDG_DATA_HOME")
]


@pytest.mark.parametrize("other", [*HAS_OTHER, "umask 027", "cd /"])
async def test_a_client_that_is_started_in_another_way_never_gets_servers_of_the_first(
    world: World, write_servers: WriteServers, other: str
) -> None:
    entry = json.loads(world.config.read_text())["mcpServers"]["counting"]
    config = write_servers({"counting": {**entry, "env": {"KEY": "${MY_KEY:-none}"}}})
    differs = ["sh", "-c", f'{other}; exec "$@"', "sh", *PROGRAM]
    async with world.client() as first, stdio_client(config, "--encoder", "none", program=differs) as second:
        assert (await note(first, "a")).split(" by ")[1] != (await note(second, "b")).split(" by ")[1]
        assert len(gateways()) == 2


@pytest.mark.parametrize("way", ["--alone", "--no-shared", "a variable", "a settings file", "a server of a gateway"])
async def test_a_client_has_a_gateway_of_its_own_where_something_says_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    options: list[object] = [way] if way.startswith("--") else []
    if way == "a variable":
        monkeypatch.setenv("MCP_OPTIMIZER_SHARED", "false")
    elif way == "a server of a gateway":
        monkeypatch.setenv("MCP_OPTIMIZER_DEPTH", "1")
    elif way == "a settings file":
        settings = tmp_path / "own.toml"
        settings.write_text("shared = false\n")
        options = ["--settings", settings]
    async with world.client(*options) as client:
        assert "a by" in await note(client, "a")
        assert gateways() == []


async def test_a_settings_file_that_is_about_something_else_does_not_hinder_sharing(
    world: World, tmp_path: Path
) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text("find_limit = 3\n# workers\n")
    async with world.client("--settings", settings) as first, world.client("--settings", settings) as second:
        assert (await note(first, "a")).split(" by ")[1] == (await note(second, "b")).split(" by ")[1]
        assert len(gateways()) == 1


async def test_a_gateway_whose_settings_file_names_an_address_serves_there(world: World, tmp_path: Path) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text('http = "127.0.0.1:0"\n')
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *("serve", "--config", world.config, "--settings", settings, "--encoder", "none"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"http://127.0.0.1:" not in (line := await process.stderr.readline()):
            assert line
    assert gateways() == []
    process.terminate()
    await process.communicate()


async def test_wrong_settings_are_said_and_end_the_process_as_without_sharing(world: World) -> None:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *("serve", "--config", world.config, "--mode", "nonsense"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert b"mode" in said


@contextmanager
def pretending(name: str, said: dict[str, object] | None) -> Iterator[list[bytes]]:
    """Something else that listens where gateways do: it says this of itself, welcomes everybody, and serves nobody."""
    folder = made_folder(os.environ)
    assert folder is not None
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as links:
        listening.bind(str(folder / name))
        listening.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    link = ProcessLink(connection)
                    links.callback(link.close)
                    if said is not None:
                        link.say(wire.HELLO, json.dumps(said).encode())
                    heard.append(b"".join(one.kind for one in link.hear() or []))

        answering = threading.Thread(target=answer)
        answering.start()
        yield heard
        (folder / name).unlink(missing_ok=True)
        listening.shutdown(socket.SHUT_RDWR)
        answering.join(10)


async def test_programs_that_only_look_like_a_gateway_get_no_client(world: World) -> None:
    pretenders: dict[str, dict[str, object] | None] = {
        "is silent": None,
        "says something odd": {},
        "is older": {**hello(), "version": "0"},
        "lies": hello(),
    }
    with contextlib.ExitStack() as stack:
        heard = {
            what: stack.enter_context(pretending(f"{SOCKET_PREFIX}{number}.sock", said))
            for number, (what, said) in enumerate(pretenders.items(), 1)
        }
        async with world.client() as client:
            assert "a by" in await note(client, "a")
    # The lying one was believed until it had to welcome the client.
    assert b"".join(heard["lies"]) == wire.JOIN
    assert {what: b"".join(kinds) for what, kinds in heard.items() if what != "lies"} == {
        what: b"" for what in pretenders if what != "lies"
    }


async def test_a_link_and_the_socket_of_a_dead_gateway_are_not_joined(world: World, tmp_path: Path) -> None:
    folder = made_folder(os.environ)
    assert folder is not None
    dead = folder / f"{SOCKET_PREFIX}2.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    with socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(str(tmp_path / "s"))
        elsewhere.listen()
        (folder / f"{SOCKET_PREFIX}3.sock").symlink_to(tmp_path / "s")
        async with world.client() as client:
            assert "a by" in await note(client, "a")
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert not dead.exists()


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


async def test_alone_means_a_gateway_for_one_client_whatever_the_settings_say(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_SHARED", "1")
    async with world.client("--shared", "--alone") as client:
        assert "a by" in await note(client, "a")
        assert gateways() == []


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


NOBODY = 65534
BECOMES = f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
LISTENS = f"""{BECOMES}
listening = socket.socket(socket.AF_UNIX); listening.bind(sys.argv[1]); listening.listen(); print(flush=True)
listening.settimeout(60); listening.accept(); print("joined", flush=True)
"""
CONNECTS = f"{BECOMES}; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@pytest.mark.skipif(not CAN_CONTROL or os.getuid() != 0, reason="only root can be two users")
async def test_nobody_joins_the_gateway_of_another_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        # Another user's folder is in it.
        Path(place).chmod(0o711)
        theirs = Path(place) / "mcp-optimizer"
        theirs.mkdir(0o700)
        os.chown(theirs, NOBODY, NOBODY)
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        listening = await _as_nobody(LISTENS, theirs / f"{SOCKET_PREFIX}1.sock")
        assert listening.stdout is not None
        await listening.stdout.readline()
        async with world.client() as client:
            assert "a by" in await note(client, "a")
            folder = made_folder(os.environ)
            assert folder is not None
            ours, *_ = sockets_named(lambda name: name.startswith(SOCKET_PREFIX), [folder])
            refused = await _as_nobody(CONNECTS, ours)
            assert b"Permission" in (await refused.communicate())[1]
        listening.terminate()
        assert await listening.stdout.read() == b""
        await listening.communicate()


async def _as_nobody(program: str, *arguments: object) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-I", "-S", "-c", program, *map(str, arguments))
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
