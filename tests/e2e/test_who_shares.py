"""Which clients on stdio share a gateway, and which never do: other settings, variables, folders, users, programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_optimizer.runtime.sharing import wire
from mcp_optimizer.runtime.sharing.client_process import SOCKET_PREFIX, hello
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, made_folder, sockets_named
from mcp_optimizer.runtime.sharing.wire import ProcessLink
from tests.conftest import WriteServers
from tests.e2e.raw_clients import message, stdio_client
from tests.e2e.shared_gateways import PROGRAM, World, gateways, made_world, note
from tests.waiting import until

pytestmark = pytest.mark.skipif(not CAN_CONTROL, reason="this system has no sockets that belong to a user")


@pytest.fixture
def world(write_servers: WriteServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with made_world(write_servers, tmp_path, monkeypatch) as made:
        yield made


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


def placed(world: World, place: str) -> None:
    """Let the entry of the server say where it runs."""
    servers = json.loads(world.config.read_text())
    servers["mcpServers"]["counting"]["cwd"] = place
    world.config.write_text(json.dumps(servers))


async def test_clients_part_once_the_server_file_names_a_variable_that_they_have_with_different_values(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "one", tmp_path / "other"]
    for place in places:
        place.mkdir()
    monkeypatch.setenv("MY_PLACE", str(places[0]))
    differs = ["sh", "-c", f'export MY_PLACE={places[1]}; exec "$@"', "sh", *PROGRAM]
    async with world.client() as first, stdio_client(world.config, "--encoder", "none", program=differs) as second:
        assert (await note(first, "a")).split(" by ")[1] == (await note(second, "b")).split(" by ")[1]
        placed(world, "${MY_PLACE}")
        await until(lambda: len(gateways()) == 2, timeout=60)
        answers = [await note(client, "c") for client in (first, second)]
        assert [answer.partition(" in ")[2] for answer in answers] == [*map(str, places)]
        async with world.client() as third:
            assert (await note(third, "d")).split(" by ")[1] == answers[0].split(" by ")[1]


async def test_a_server_file_that_names_a_variable_which_all_clients_have_alike_parts_no_clients(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "one"
    place.mkdir()
    monkeypatch.setenv("MY_PLACE", str(place))
    async with world.client() as first, world.client() as second:
        (gateway,) = gateways()
        await note(first, "a")
        placed(world, "${MY_PLACE}")

        async def is_placed() -> bool:
            return (await note(first, "a")).endswith(str(place))

        await until(is_placed, timeout=60)
        async with world.client() as third:
            answers = {(await note(client, "b")).split(" by ")[1] for client in (first, second, third)}
        assert len(answers) == 1
        assert gateways() == [gateway]


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the gateway's process reads the files once more")
async def test_a_settings_file_that_is_not_trusted_is_named_once_though_two_processes_serve(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The word has the client's process read the settings before it starts a gateway.
    (tmp_path / "mcp-optimizer.toml").write_text("shared = true\n")
    monkeypatch.chdir(tmp_path)
    options = ("serve", "--config", world.config, "--encoder", "none")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*PROGRAM, *options, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(60):
        _, said = await process.communicate(json.dumps(message("ping")).encode() + b"\n")
    assert said.count(b"Not used: ./mcp-optimizer.toml") == 1
    assert process.returncode == 0


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


async def test_alone_means_a_gateway_for_one_client_whatever_the_settings_say(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_SHARED", "1")
    async with world.client("--shared", "--alone") as client:
        assert "a by" in await note(client, "a")
        assert gateways() == []


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
