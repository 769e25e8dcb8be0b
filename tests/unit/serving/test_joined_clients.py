"""Who may join a shared gateway: a process of the same user that needs the same gateway, and says so properly."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_optimizer.runtime.sharing import places, wire
from mcp_optimizer.runtime.sharing.client_process import SOCKET_PREFIX, hello
from mcp_optimizer.runtime.sharing.journal import new_file
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, made_folder
from mcp_optimizer.runtime.sharing.wire import ProcessLink, Said
from mcp_optimizer.serving import joined_clients
from mcp_optimizer.serving.joined_clients import JoinedClient, JoinedClients
from tests.waiting import until

pytestmark = pytest.mark.skipif(not CAN_CONTROL, reason="this system has no sockets that belong to a user")

LIKE = "the same settings"


class Gateway:
    """A gateway that serves nobody, and remembers who joined."""

    def __init__(self) -> None:
        self.served: list[JoinedClient] = []
        self.reloads = 0
        self.joined: list[ProcessLink] = []
        self.clients = JoinedClients(self.served.append, self._reload)

    def _reload(self) -> None:
        self.reloads += 1

    def joining(self) -> ProcessLink:
        folder = made_folder(os.environ)
        assert folder is not None
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(str(folder / f"{SOCKET_PREFIX}{os.getpid()}.sock"))
        self.joined.append(ProcessLink(connection))
        return self.joined[-1]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    ours, theirs = socket.socketpair()
    first = ProcessLink(ours)
    made.clients.begin_with(theirs)
    made.clients.listen(os.environ)
    first.say(wire.JOIN, join("first"))
    await asyncio.sleep(0)
    yield made
    made.clients.close()
    for link in (first, *made.joined):
        link.close()
    async with asyncio.timeout(5):
        await made.clients.none_for(0)
    for client in made.served:
        made.clients.left(client)
        for file in (client.stdin, client.stdout):
            os.close(file)


def join(name: object, like: object = LIKE) -> bytes:
    return json.dumps({"name": name, "like": like, "variables": {}}).encode()


async def heard(link: ProcessLink) -> list[Said] | None:
    """What it says next; None if it has ended the connection."""
    try:
        return await asyncio.to_thread(link.hear)
    except ConnectionResetError:
        return None


async def until_served(gateway: Gateway, count: int) -> None:
    await until(lambda: len(gateway.served) == count)


async def test_a_process_that_needs_the_same_gateway_is_welcome_and_hands_over_its_files(gateway: Gateway) -> None:
    link = gateway.joining()
    greeted = await heard(link)
    assert greeted is not None
    assert [json.loads(said.content) for said in greeted] == [hello()]
    link.say(wire.JOIN, join("b"))
    assert await heard(link) == [Said(wire.WELCOME)]
    reading, writing = os.pipe()
    link.say(wire.FILES, files=(reading, writing, new_file()))
    await until_served(gateway, 1)
    [client] = gateway.served
    assert (client.name, client.standing.is_new) == ("b", True)
    os.write(client.stdout, b"x")
    assert os.read(reading, 1) == b"x"
    link.say(wire.RELOAD)
    link.say(wire.STOP)
    async with asyncio.timeout(5):
        await client.is_to_end.wait()
    assert gateway.reloads == 1
    gateway.clients.left(client)
    assert await heard(link) == [Said(wire.END, b"0")]
    assert await heard(link) is None


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (wire.JOIN, join("b", "other settings")),
        (wire.JOIN, join("first")),
        (wire.JOIN, join("")),
        (wire.JOIN, join("../b")),
        (wire.JOIN, join(7)),
        (wire.JOIN, join("b" * 65)),
        (wire.JOIN, b"[]"),
        (wire.JOIN, b"{"),
        (wire.JOIN, b"[" * 100_000),
        (wire.JOIN, b"\xff"),
        (wire.FILES, b""),
        (wire.STOP, b""),
        (wire.RELOAD, b""),
        (b"?", b""),
    ],
)
async def test_whatever_else_a_process_says_first_ends_its_connection(
    gateway: Gateway, kind: bytes, content: bytes
) -> None:
    link = gateway.joining()
    await heard(link)
    link.say(kind, content)
    said = await heard(link)
    assert said in (None, [Said(wire.OTHER)])
    if said is not None:
        assert await heard(link) is None
    assert gateway.served == []
    assert len(gateway.clients) == 1


@pytest.mark.parametrize("count", [0, 1, 2, 4])
async def test_another_number_of_files_ends_the_connection_and_leaves_none_open(gateway: Gateway, count: int) -> None:
    link = gateway.joining()
    await heard(link)
    link.say(wire.JOIN, join("b"))
    await heard(link)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    files = [new_file() for _ in range(count)]
    link.say(wire.FILES, files=files)
    assert await heard(link) is None
    for file in files:
        os.close(file)
    if before:
        # The gateway has closed its end of the connection, too.
        assert len(os.listdir("/proc/self/fd")) == before - 1
    assert gateway.served == []


async def test_a_message_of_more_than_the_longest_is_not_waited_for(gateway: Gateway) -> None:
    link = gateway.joining()
    await heard(link)
    link.socket.sendall(b"\xff\xff\xff\xffJ")
    assert await heard(link) is None


async def test_a_process_of_another_user_hears_nothing(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests cannot become another user everywhere.
    monkeypatch.setattr(joined_clients, "is_own_user", lambda _connection: False)
    assert await heard(gateway.joining()) is None


def test_a_connection_of_another_user_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert places.is_own_user(ours)
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        assert places.is_own_user(ours) is not hasattr(socket, "SO_PEERCRED")
