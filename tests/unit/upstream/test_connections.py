"""HTTP connections to servers: kept, distinguished from closed ones, and never mixed up."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from mcp_optimizer.upstream.transports import connections
from mcp_optimizer.upstream.transports.connections import ArrivingBody, KeptConnections, origin_of, written_head

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Listener:
    """A server that answers each request with what the test says, and remembers the connections."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self.answers = list(answers)
        self.closes = closes
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self.left = asyncio.Event()
        """Set when a client has closed its end of a connection."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
                self.requests.append((number, head + await reader.readexactly(length)))
                writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
                await writer.drain()
                if self.closes:
                    writer.write_eof()
                    await reader.read()
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def served(handler: Handler, idle: float = 3.0) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = KeptConnections(ssl.create_default_context, idle)
    async with server, httpx2.AsyncClient(transport=transport, timeout=5) as client:
        yield client, f"http://127.0.0.1:{port}/mcp?key=1"


async def test_a_connection_is_used_again_when_its_answer_was_read() -> None:
    listener = Listener(OK)
    async with served(listener) as (client, url):
        for _ in range(3):
            assert (await client.post(url, content=b"{}")).text == "ok"
    assert [number for number, _ in listener.requests] == [1, 1, 1]
    assert listener.requests[0][1].startswith(b"POST /mcp?key=1 HTTP/1.1\r\n")
    assert listener.requests[0][1].endswith(b"\r\n\r\n{}")


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    listener = Listener(OK)
    async with served(listener) as (client, url):
        await asyncio.gather(*(client.post(url, content=b"{}") for _ in range(5)))
        await asyncio.gather(*(client.post(url, content=b"{}") for _ in range(5)))
    assert listener.connections == 5


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    listener = Listener(OK, closes=True)
    async with served(listener) as (client, url):
        for _ in range(2):
            assert (await client.post(url, content=b"{}")).text == "ok"
            await asyncio.wait_for(listener.left.wait(), 5)
            listener.left.clear()
    assert listener.connections == 2


async def test_a_connection_that_was_idle_for_long_is_closed() -> None:
    listener = Listener(OK)
    async with served(listener, idle=0.05) as (client, url):
        await client.post(url, content=b"{}")
        await asyncio.wait_for(listener.left.wait(), 5)
        assert (await client.post(url, content=b"{}")).text == "ok"
    assert listener.connections == 2


async def test_an_answer_that_is_left_half_read_costs_its_connection() -> None:
    listener = Listener(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", OK)
    async with served(listener) as (client, url):
        async with client.stream("POST", url, content=b"{}") as response:
            assert await anext(response.aiter_bytes()) == b"half"
        assert (await client.post(url, content=b"{}")).text == "ok"
    assert listener.connections == 2


async def test_a_second_answer_to_one_request_is_never_taken_for_the_next_ones() -> None:
    forged = OK + b"HTTP/1.1 200 OK\r\nx-forged: yes\r\ncontent-length: 6\r\n\r\nforged"
    listener = Listener(forged, OK)
    async with served(listener) as (client, url):
        first = await client.post(url, content=b"{}")
        assert first.text == "ok"
        assert "x-forged" not in first.headers
        assert (await client.post(url, content=b"{}")).text == "ok"
    assert listener.connections == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end"),
        (b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
    ],
)
async def test_every_way_to_end_an_answer_is_understood(answer: bytes, text: str) -> None:
    async with served(Listener(answer, closes=True)) as (client, url):
        assert (await client.post(url, content=b"{}")).text == text


async def test_a_compressed_answer_is_read() -> None:
    packed = gzip.compress(b"x" * 10_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n"
    async with served(Listener(head.encode() + packed)) as (client, url):
        assert (await client.post(url, content=b"{}")).text == "x" * 10_000


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.2\r\n"],
    ids=["none", "half", "not HTTP"],
)
async def test_an_answer_that_does_not_come_whole_is_an_error(answer: bytes) -> None:
    async with served(Listener(answer, closes=True)) as (client, url):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post(url, content=b"{}")


async def test_nothing_at_the_address_is_an_error_of_the_connection() -> None:
    async with served(Listener(OK)) as (client, url):
        pass
    async with httpx2.AsyncClient(transport=KeptConnections(ssl.create_default_context, 3)) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.post(url, content=b"{}")


async def test_a_header_cannot_smuggle_in_another_request() -> None:
    listener = Listener(OK)
    async with served(listener) as (client, url):
        with pytest.raises(httpx2.LocalProtocolError, match="line break"):
            await client.post(url, headers={"x-name": "a\r\n\r\nGET /secret HTTP/1.1"}, content=b"{}")
    assert not listener.requests


async def test_a_large_answer_waits_for_its_reader() -> None:
    size = 20_000_000
    answer = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode() + b"x" * size
    written = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(answer)
        await writer.drain()
        written.set()
        writer.close()

    async with served(handler) as (client, url), client.stream("POST", url, content=b"{}") as response:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(written.wait(), 0.3)
        assert len(await response.aread()) == size
        assert written.is_set()


async def test_whoever_leaves_takes_the_connection_along() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        asked.set()
        await reader.read()
        gone.set()
        writer.close()

    async with served(silent) as (client, url):
        asking = asyncio.create_task(client.post(url, content=b"{}"))
        await asyncio.wait_for(asked.wait(), 5)
        asking.cancel()
        await asyncio.wait({asking})
        await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("closes", [False, True])
async def test_an_answer_in_chunks_of_one_byte_comes_whole_while_others_run(closes: bool) -> None:
    count = 60_000
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    listener = Listener(head + b"1\r\nx\r\n" * count + b"0\r\n\r\n", OK, closes=closes)
    async with served(listener) as (client, url):
        others = asyncio.create_task(take_turns())
        assert (await client.get(url)).text == "x" * count
        others.cancel()
        if closes:
            await asyncio.wait_for(listener.left.wait(), 5)
        assert (await client.get(url)).text == "ok"
    # A slice of the answer is a few thousand chunks, and after each the others have their turns.
    assert turns > count * 6 / 16_384


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nanswer\r\n"


class Streaming:
    """A server whose responses begin with an answer; `rest` follows when the test says."""

    def __init__(self, rest: bytes, ends: asyncio.Event | None = None) -> None:
        self.rest = rest
        self.ends = ends
        self.left = asyncio.Event()
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"{}")
                writer.write(CHUNKED)
                if self.ends is not None:
                    await self.ends.wait()
                    writer.write(self.rest)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.left.set()


async def answered(transport: KeptConnections, url: str, needs_rest: bool = False) -> None:
    """A request, of whose response only the beginning is read."""
    request = httpx2.Request("POST", url, content=b"{}")
    response = await transport.exchange(origin_of(request.url), written_head(request) + b"{}", 5)
    assert isinstance(response.stream, ArrivingBody)
    assert await anext(aiter(response.stream)) == b"answer"
    if not needs_rest:
        response.stream.rest_is_not_needed()
    await response.stream.aclose()


@asynccontextmanager
async def streaming(server: Streaming) -> AsyncIterator[tuple[KeptConnections, str]]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    transport = KeptConnections(ssl.create_default_context, 3)
    async with listening:
        async with transport:
            yield transport, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        await asyncio.wait_for(server.left.wait(), 5)


async def test_an_answer_whose_end_comes_later_keeps_its_connection() -> None:
    server = Streaming(b"0\r\n\r\n", asyncio.Event())
    assert server.ends is not None
    async with streaming(server) as (transport, url):
        for _ in range(3):
            await answered(transport, url)
            server.ends.set()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.left.wait(), 0.1)
            server.ends.clear()
    assert server.connections == 1


async def test_an_answer_that_does_not_end_soon_costs_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FINISHING", 0.05)
    server = Streaming(b"")
    async with streaming(server) as (transport, url):
        await answered(transport, url)
        await asyncio.wait_for(server.left.wait(), 5)


async def test_an_answer_with_a_long_rest_costs_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FINISHING", 60)
    server = Streaming(b"2000\r\n" + b"x" * 0x2000, asyncio.Event())
    assert server.ends is not None
    async with streaming(server) as (transport, url):
        await answered(transport, url)
        server.ends.set()
        await asyncio.wait_for(server.left.wait(), 5)


async def test_only_so_many_connections_wait_for_the_end_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FINISHING", 60)
    monkeypatch.setattr(connections, "_MOST_FINISHING", 2)
    server = Streaming(b"")
    async with streaming(server) as (transport, url):
        for _ in range(2):
            await answered(transport, url)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.left.wait(), 0.1)
        await answered(transport, url)
        await asyncio.wait_for(server.left.wait(), 5)


async def test_a_reader_that_leaves_closes_the_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FINISHING", 60)
    server = Streaming(b"")
    async with streaming(server) as (transport, url):
        await answered(transport, url, needs_rest=True)
        await asyncio.wait_for(server.left.wait(), 5)


async def test_what_was_received_after_an_answer_and_not_parsed_yet_is_not_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_SLICE", len(OK))
    monkeypatch.setattr(connections, "_LONG_SLICE", -1)
    monkeypatch.setattr(connections, "_REST", 1_000)
    forged = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
    listener = Listener(OK + forged, OK)
    async with served(listener) as (client, url):
        for _ in range(2):
            assert (await client.post(url, content=b"{}")).text == "ok"
    assert listener.connections == 2
