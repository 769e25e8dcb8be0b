"""Requests over kept connections are what httpx would have sent, with cookies and passwords where there are some."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.transports.http_client import BodyUnreadable, ServerClient, http_client, whole_body
from tests.unit.upstream.test_connections import OK, Listener

COOKIE = OK.replace(b"content-length", b"set-cookie: place=7; Path=/\r\ncontent-length")


@asynccontextmanager
async def reached(
    listener: Listener, login: str = "", **headers: str
) -> AsyncIterator[tuple[ServerClient, httpx2.URL]]:
    server = await asyncio.start_server(listener, "127.0.0.1", 0)
    url = f"http://{login}127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    spec = ServerSpec(name="far", transport=Transport.HTTP, url=url, headers=headers)
    async with server, http_client(spec) as client:
        yield client, httpx2.URL(url)


async def sent(client: ServerClient, url: httpx2.URL, **headers: str) -> str:
    response = await client.exchange("POST", url, headers, b"{}")
    text = await response.aread()
    await response.aclose()
    return text.decode()


def fields(request: bytes) -> dict[bytes, bytes]:
    first, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return {b"": first} | {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}


async def test_a_request_is_the_one_that_httpx_would_send() -> None:
    listener = Listener(OK)
    async with reached(listener, **{"X-Own": "entry", "X-Key": "entry"}) as (client, url):
        assert await sent(client, url, **{"x-key": "call", "accept": "application/json"}) == "ok"
        headers = {"x-key": "call", "accept": "application/json"}
        await client.send(client.build_request("POST", url, content=b"{}", headers=headers))
    (_, ours), (_, theirs) = listener.requests
    assert fields(ours) == fields(theirs)
    assert fields(ours)[b"x-key"] == b"call"
    assert ours.endswith(b"\r\n\r\n{}")


async def test_a_cookie_goes_back_to_the_server_that_set_it() -> None:
    listener = Listener(COOKIE, OK)
    async with reached(listener) as (client, url):
        for _ in range(3):
            await sent(client, url)
    assert [fields(request).get(b"cookie") for _, request in listener.requests] == [None, b"place=7", b"place=7"]


async def test_a_password_in_the_address_is_sent() -> None:
    listener = Listener(OK)
    async with reached(listener, login="me:secret@") as (client, url):
        assert await sent(client, url) == "ok"
    assert fields(listener.requests[0][1])[b"authorization"].startswith(b"Basic ")


async def test_a_closed_client_opens_no_connection() -> None:
    listener = Listener(OK)
    async with reached(listener) as (client, url):
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await sent(client, url)
    assert listener.connections == 0


PIECES = [OK, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"]


@pytest.mark.parametrize("answer", PIECES, ids=["one piece", "two pieces"])
async def test_a_body_is_read_whole_and_within_its_bound_however_it_came(answer: bytes) -> None:
    async with reached(Listener(answer)) as (client, url):
        for _ in range(2):
            response = await client.exchange("POST", url, {}, b"{}")
            assert await whole_body(response, 2) == b"ok"
            await response.aclose()
        with pytest.raises(BodyUnreadable):
            await whole_body(await client.exchange("POST", url, {}, b"{}"), 1)


async def test_headers_that_differ_from_request_to_request_are_each_sent() -> None:
    listener = Listener(OK)
    async with reached(listener) as (client, url):
        for number in range(3):
            await sent(client, url, **{f"x-{number}": "here"})
            await sent(client, url, accept=str(number))
    kept = [fields(request) for _, request in listener.requests]
    assert [f"x-{number}".encode() in kept[2 * number] for number in range(3)] == [True] * 3
    assert [request[b"accept"] for request in kept] == [b"*/*", b"0", b"*/*", b"1", b"*/*", b"2"]
