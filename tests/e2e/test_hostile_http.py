"""HTTP clients whose requests never end, that never read, or that come in thousands: others are still served."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, MODERN, http_client, message, resident_bytes
from tests.e2e.running import gateway_at, http_gateway

MEGABYTE = 1_000_000


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


def limits(folder: Path, **values: object) -> tuple[str, Path]:
    """Options that set limits through a settings file."""
    path = folder / "limits.toml"
    path.write_text("[limits]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return "--settings", path


class Socket:
    """A connection that can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self, seconds: float = 60) -> bytes:
        """Everything received until the gateway closes the connection."""
        received = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(seconds):
                while chunk := await self.reader.read(65_536):
                    received += chunk
        return received


@asynccontextmanager
async def connection(address: str) -> AsyncIterator[Socket]:
    host, port = address.removeprefix("http://").removesuffix("/mcp").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Socket(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(address: str, *headers: str, method: str = "POST", path: str = "/mcp") -> bytes:
    host = address.removeprefix("http://").removesuffix("/mcp")
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{key}: {value}" for key, value in ACCEPT.items()),
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def serves(address: str) -> None:
    """Check that a well-behaved client is still served."""
    async with http_client(address) as client:
        assert "tools" in (await client.ask("tools/list"))["result"]


async def test_headers_without_end_are_refused_and_cost_no_memory(config: Path) -> None:
    async with (
        http_gateway(config, "--database", "none", cold=True) as (address, process),
        connection(address) as client,
    ):
        before = resident_bytes(process.pid)
        answer = asyncio.create_task(client.rest())
        with contextlib.suppress(ConnectionError):
            await client.send(head(address)[:-4] + b"\r\nX-Long: ")
            for _ in range(300):
                await client.send(b"x" * MEGABYTE)
        assert b" 431 " in await answer
        assert resident_bytes(process.pid) - before < 50 * MEGABYTE
        await serves(address)


async def test_headers_and_bodies_that_drip_are_given_up(config: Path, tmp_path: Path) -> None:
    options = limits(tmp_path, request_seconds=1.0)
    async with (
        gateway_at(config, "--database", "none", *options) as address,
        connection(address) as silent,
        connection(address) as dripping,
        connection(address) as unfinished,
    ):
        await dripping.send(head(address)[:-10])
        await unfinished.send(head(address, "Transfer-Encoding: chunked") + b'5\r\n{"jso\r\n')
        assert await silent.rest() == b""
        assert await dripping.rest() == b""
        assert b" 408 " in await unfinished.rest()
        await serves(address)


@pytest.mark.promise("inputs-limited")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_body_over_the_limit_is_refused_while_it_arrives(config: Path, tmp_path: Path, era: str) -> None:
    options = limits(tmp_path, request_bytes=1_000_000)
    chunk = b"f4240\r\n" + b"x" * MEGABYTE + b"\r\n"
    async with http_gateway(config, "--database", "none", *options, cold=True) as (address, process):
        before = resident_bytes(process.pid)
        begin = head(address, "Transfer-Encoding: chunked", f"MCP-Protocol-Version: {era}")
        async with connection(address) as client:
            await client.send(begin + 3 * chunk + b"0\r\n\r\n")
            received = await client.rest()
        assert b" 413 " in received
        assert b"A message may have 1,000,000 bytes." in received
        async with connection(address) as endless:
            with contextlib.suppress(ConnectionError):
                await endless.send(begin)
                async with asyncio.timeout(60):
                    while True:
                        await endless.send(chunk)
        assert resident_bytes(process.pid) - before < 50 * MEGABYTE
        await serves(address)


async def test_many_large_bodies_at_a_time_wait_for_each_other(config: Path, tmp_path: Path) -> None:
    options = limits(tmp_path, request_bytes=1_000_000, request_seconds=30.0)
    async with (
        gateway_at(config, "--database", "none", *options) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        begun = head(address, "Content-Length: 1000000") + b"x" * 900_000
        clients = [await stack.enter_async_context(connection(address)) for _ in range(6)]
        for client in clients:
            await client.send(begun)
        ended = [asyncio.create_task(client.rest()) for client in clients]
        refused, waiting = await asyncio.wait(ended, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        received = refused.pop().result()
        assert b" 503 " in received
        assert b"retry-after" in received
        await serves(address)
        for task in waiting:
            task.cancel()


async def test_sessions_over_the_limit_are_told_to_come_back_later(config: Path, tmp_path: Path) -> None:
    options = limits(tmp_path, sessions=3)
    async with gateway_at(config, "--database", "none", *options) as address, httpx2.AsyncClient() as http:
        opened = [await http.post(address, json=message("initialize", HELLO), headers=ACCEPT) for _ in range(5)]
        assert [response.status_code for response in opened] == [200, 200, 200, 503, 503]
        assert opened[-1].headers["retry-after"] == "1"
        session = {**ACCEPT, "Mcp-Session-Id": opened[0].headers["mcp-session-id"]}
        assert (await http.post(address, json=message("ping"), headers=session)).status_code == 200
        # Modern clients have no sessions, so they are not limited.
        async with http_client(address, MODERN) as modern:
            assert "tools" in (await modern.ask("tools/list"))["result"]


async def test_connections_over_the_limit_are_told_to_come_back_later(config: Path, tmp_path: Path) -> None:
    options = limits(tmp_path, connections=5)
    async with gateway_at(config, "--database", "none", *options) as address:
        async with contextlib.AsyncExitStack() as open_:
            for _ in range(5):
                await open_.enter_async_context(connection(address))
            further = await open_.enter_async_context(connection(address))
            received = await further.rest()
            assert b" 503 " in received
            assert b"Retry-After" in received
        await serves(address)


async def test_session_ids_and_event_ids_of_nobody_are_not_found(config: Path) -> None:
    async with gateway_at(config, "--database", "none") as address, http_client(address) as client:
        for session in ("x", "0" * 32, "%00", "x" * 60_000):
            response = await client.post(message("tools/list"), **{"Mcp-Session-Id": session})
            assert response.status_code == 404
        for event in ("no number", "9" * 5_000, "-1", "٣", "0"):
            headers = {key.encode(): value.encode() for key, value in client.headers.items()}
            headers[b"Last-Event-ID"] = event.encode()
            response = await client.http.get(address, headers=headers)
            assert (response.status_code, response.text) == (200, "")
        await serves(address)


async def test_content_types_and_hosts_are_looked_at_before_the_body(config: Path) -> None:
    async with gateway_at(config, "--database", "none") as address:
        for wrong, status in (("Host: evil.example", b" 421 "), ("Origin: https://evil.example", b" 403 ")):
            async with connection(address) as client:
                lines = head(address, "Content-Length: 1000000", wrong).split(b"\r\n")
                lines = [line for line in lines if not (wrong.startswith("Host") and line.startswith(b"Host: 127"))]
                await client.send(b"\r\n".join(lines) + b"x")
                assert status in await asyncio.wait_for(client.reader.readline(), 20)
        async with http_client(address) as client:
            for kind in ("text/plain", "nonsense", "application/x-www-form-urlencoded"):
                assert (await client.post(message("ping"), **{"Content-Type": kind})).status_code == 400
