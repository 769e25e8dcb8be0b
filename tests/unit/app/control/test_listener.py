"""A gateway's socket, with real connections: what is asked is answered, and nobody who misbehaves holds it up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer import __version__
from mcp_optimizer.app.control.command_requests import FindRequest, Request, StatusRequest, ToolsRequest
from mcp_optimizer.app.control.gateway_client import RunningGateway, running_gateways
from mcp_optimizer.app.control.listener import ControlLimits, ControlListener
from mcp_optimizer.app.control.wire import Hello, identity
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError, GatewayFailure
from tests.waiting import until

DEMO = Settings(demo=True)


class Asked:
    """Answers with what was asked, and knows what was cancelled."""

    def __init__(self) -> None:
        self.waiting = 0
        self.cancelled = 0

    async def answer(self, request: Request) -> Any:
        if isinstance(request, ToolsRequest) and request.server == "wrong":
            raise ConfigurationError("There is no such server.")
        if isinstance(request, ToolsRequest) and request.server == "broken":
            raise RuntimeError("a fault of ours")
        if isinstance(request, ToolsRequest) and request.server == "large":
            return "x" * 20_000_000
        if isinstance(request, ToolsRequest) and request.server == "never":
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        return {"asked": request.method, "half": "\ud800"}


Listen = Callable[..., Any]


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
async def listen(asked: Asked) -> AsyncIterator[Listen]:
    made: list[ControlListener] = []

    async def start(limits: ControlLimits | None = None, version: str = __version__, *, is_ready: bool = True) -> Path:
        listener = ControlListener(asked.answer, version, lambda: is_ready, limits)
        made.append(listener)
        path = await listener.start(identity(DEMO), os.environ)
        assert path is not None
        return path

    yield start
    for listener in made:
        await listener.stop()


async def found() -> list[RunningGateway]:
    return await asyncio.to_thread(running_gateways, DEMO)


async def ask(request: Request) -> Any:
    [gateway] = await found()
    return await asyncio.to_thread(gateway.ask, request, 10.0)


async def test_a_request_is_answered(listen: Listen) -> None:
    await listen()
    assert await ask(StatusRequest()) == {"asked": "status", "half": "\ud800"}


@pytest.mark.slow
async def test_an_answer_may_be_large(listen: Listen) -> None:
    await listen()
    assert len(await ask(ToolsRequest(server="large"))) == 20_000_000


async def test_a_failure_keeps_its_message_and_exit_code(listen: Listen) -> None:
    await listen()
    with pytest.raises(GatewayFailure, match=r"There is no such server\.") as failure:
        await ask(ToolsRequest(server="wrong"))
    assert failure.value.code == 2


async def test_a_fault_of_the_gateway_is_reported_without_its_words(listen: Listen) -> None:
    await listen()
    with pytest.raises(GatewayFailure, match="its log says why"):
        await ask(ToolsRequest(server="broken"))


async def test_a_socket_is_removed_when_its_gateway_stops(asked: Asked) -> None:
    listener = ControlListener(asked.answer, __version__, lambda: True)
    path = await listener.start(identity(DEMO), os.environ)
    assert path is not None
    await listener.stop()
    assert not path.exists()
    assert await found() == []


async def test_the_socket_of_a_dead_gateway_is_removed(listen: Listen) -> None:
    path = await listen()
    dead = path.with_name(f"{identity(DEMO)}-1.sock")
    reader = await asyncio.start_unix_server(lambda _reader, _writer: None, str(dead))
    reader.close()
    await reader.wait_closed()
    if not dead.exists():
        # Newer Pythons remove it themselves.
        import socket

        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(dead))
    assert len(await found()) == 1
    assert not dead.exists()


async def test_a_gateway_that_is_ready_is_preferred_to_a_newer_one(listen: Listen, asked: Asked) -> None:
    ready = await listen()
    kept = ready.with_name(f"{identity(DEMO)}-7.sock")
    ready.rename(kept)
    os.utime(kept, (1, 1))
    await listen(is_ready=False)
    assert [gateway.hello.is_ready for gateway in await found()] == [True, False]
    kept.unlink()


async def test_another_version_can_be_told(listen: Listen) -> None:
    await listen(version="0.0.1")
    assert [gateway.is_same_version for gateway in await found()] == [False]


@pytest.mark.parametrize(
    "line",
    [b"no json\n", b"[]\n", b"{}\n", b'{"method": "format"}\n', b'{"method": "tools", "server": 5}\n',
     b'{"method": "tools", "extra": 1}\n', b"[" * 100_000 + b"\n", b'{"method": "status", "wait": -1}\n', b"\xff\n"],
    ids=["text", "list", "empty", "unknown", "type", "extra", "deep", "negative", "bytes"],
)  # fmt: skip
async def test_what_is_no_request_is_refused(listen: Listen, line: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(await listen()))
    await reader.readline()
    writer.write(line)
    assert "does not understand" in json.loads(await reader.readline())["failure"]["message"]
    writer.close()


async def test_a_request_without_an_end_is_refused(listen: Listen) -> None:
    path = await listen(ControlLimits(request_bytes=1_000))
    reader, writer = await asyncio.open_unix_connection(str(path))
    await reader.readline()
    writer.write(b"x" * 5_000)
    assert "longer than 1,000 bytes" in json.loads(await reader.readline())["failure"]["message"]
    writer.close()


async def test_half_a_request_is_not_waited_for(listen: Listen) -> None:
    path = await listen(ControlLimits(request_seconds=0.05))
    reader, writer = await asyncio.open_unix_connection(str(path))
    await reader.readline()
    writer.write(b'{"method": "sta')
    assert await asyncio.wait_for(_rest(reader), 5) == b""
    writer.close()


async def test_whoever_does_not_read_the_answer_is_let_go(listen: Listen) -> None:
    path = await listen(ControlLimits(connections=1, reading_seconds=0.05))
    _, writer = await asyncio.open_unix_connection(str(path), limit=1)
    writer.write(b'{"method": "tools", "server": "large"}\n')
    # There is room for one, so another is only answered when this one was let go.
    await until(found)
    writer.close()


async def test_what_nobody_waits_for_any_more_is_cancelled(listen: Listen, asked: Asked) -> None:
    _, writer = await asyncio.open_unix_connection(str(await listen()))
    writer.write(b'{"method": "tools", "server": "never"}\n')
    await until(lambda: asked.waiting)
    writer.close()
    await until(lambda: asked.cancelled)


async def test_a_flood_of_connections_is_cut_off_and_passes(listen: Listen) -> None:
    path = await listen(ControlLimits(connections=4))
    flood = [await asyncio.open_unix_connection(str(path)) for _ in range(100)]
    hellos = await asyncio.gather(*(_rest_of_line(reader) for reader, _ in flood))
    assert sum(bool(line) for line in hellos) == 4
    assert await found() == []
    for _, writer in flood:
        writer.close()
    await until(found)


async def test_stopping_does_not_wait_for_those_who_ask(asked: Asked) -> None:
    listener = ControlListener(asked.answer, __version__, lambda: True)
    path = await listener.start(identity(DEMO), os.environ)
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b'{"method": "tools", "server": "never"}\n')
    await until(lambda: asked.waiting)
    await asyncio.wait_for(listener.stop(), 5)
    assert asked.cancelled == 1
    await reader.readline()
    assert await _rest(reader) == b""
    writer.close()


NO_ANSWERS = [b"[]\n", b"1\n", b"no JSON\n", b'{"failure": 1}\n', b'{"failure": {}}\n', b"[" * 100_000 + b"\n", b""]


@pytest.mark.parametrize("line", NO_ANSWERS)
async def test_what_is_no_answer_is_a_failure_of_the_command(listen: Listen, line: bytes) -> None:
    path = await listen()
    [gateway] = await found()
    path.unlink()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(gateway.hello.line())
        await reader.readline()
        writer.write(line)
        writer.close()

    async with await asyncio.start_unix_server(reply, path):
        with pytest.raises(GatewayFailure, match=r"did not answer|before it answered"):
            await asyncio.to_thread(gateway.ask, StatusRequest(), 10.0)


async def test_a_request_that_no_gateway_takes_is_not_sent(listen: Listen) -> None:
    await listen()
    with pytest.raises(GatewayFailure, match="a running gateway takes 10,000,000"):
        await ask(FindRequest(query="x" * 11_000_000))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user for a moment")
async def test_a_gateway_of_another_user_is_not_asked(listen: Listen) -> None:
    path = await listen()
    assert len(await found()) == 1
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        user = os.geteuid()
        # The system remembers who made it listen.
        os.seteuid(12_345)
        try:
            made.listen()
        finally:
            os.seteuid(user)
        made.setblocking(False)
        looking = asyncio.create_task(found())
        accepted, _ = await asyncio.get_running_loop().sock_accept(made)
        with accepted:
            with contextlib.suppress(OSError):
                accepted.sendall(Hello(__version__, os.getpid(), is_ready=True).line())
            assert await looking == []


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def _rest_of_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ConnectionError:
        return b""
