"""Where requests go that somebody else named."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest

from mcp_optimizer.config.serverfile.spec import NO_AUTH
from mcp_optimizer.identity.challenges import Challenge
from mcp_optimizer.identity.discovery import discovered
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.runtime.outgoing import (
    Distance,
    Outgoing,
    OutOfBounds,
    Pinned,
    UnreadableBody,
    body_within,
    is_this_machine,
    written_distance,
)

EVERYWHERE = str(ipaddress.IPv4Address(0))
PUBLIC, PRIVATE, HERE = "93.184.216.34", "10.1.2.3", "127.0.0.1"
NAMES: dict[str, Sequence[str]] = {
    "public.example": [PUBLIC],
    "inside.example": [PRIVATE],
    "here.example": [HERE],
    "two.example": [PUBLIC, HERE],
    "metadata.example": ["169.254.169.254"],
    "shared.example": ["100.64.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "six.example": ["fd00::1"],
    "zero.example": [EVERYWHERE],
    "nat64.example": ["64:ff9b::7f00:1"],
    "6to4.example": ["2002:7f00:1::"],
    "compatible.example": ["::127.0.0.1"],
}


def outgoing(names: Mapping[str, Sequence[str]] = NAMES) -> Outgoing:
    async def resolve(host: str, _port: int) -> Sequence[str]:
        return names.get(host, [host])

    return Outgoing(resolve)


@pytest.mark.parametrize(
    "named",
    ["here", "inside", "two", "metadata", "shared", "mapped", "six", "zero", "nat64", "6to4", "compatible"],
)
async def test_a_server_elsewhere_names_nothing_here_or_in_this_network(named: str) -> None:
    with pytest.raises(OutOfBounds, match="names an address on this"):
        await outgoing().place(f"https://{named}.example/token", "https://public.example/mcp")


@pytest.mark.parametrize("literal", ["127.0.0.1", "127.8.9.10", "[::1]", "10.0.0.1", "192.168.1.1", "[fe80::1]"])
async def test_an_address_in_digits_is_judged_like_a_name(literal: str) -> None:
    with pytest.raises(OutOfBounds):
        await outgoing({literal.strip("[]"): [literal.strip("[]")], "public.example": [PUBLIC]}).place(
            f"https://{literal}/token", "https://public.example/mcp"
        )


async def test_a_server_in_this_network_names_others_in_it_and_nothing_on_this_machine() -> None:
    asked = outgoing()
    assert await asked.place("https://shared.example/token", "https://inside.example/mcp") == "100.64.0.1"
    assert await asked.place("https://public.example/token", "https://inside.example/mcp") == PUBLIC
    with pytest.raises(OutOfBounds, match="on this machine"):
        await asked.place("https://here.example/token", "https://inside.example/mcp")


async def test_what_the_entry_names_may_be_anywhere() -> None:
    named = ("https://public.example/mcp", "https://inside.example")
    assert await outgoing().place("https://inside.example/token", named[0], named) == PRIVATE
    with pytest.raises(OutOfBounds):
        # Another port is another address.
        await outgoing().place("https://inside.example:8443/token", named[0], named)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost.example", "127.0.0.5", "::1", EVERYWHERE])
async def test_nothing_leads_to_the_gateway_itself(host: str) -> None:
    asked = outgoing({"localhost.example": [HERE]})
    asked.listening(8000)
    shown = f"[{host}]" if ":" in host else host
    for named_by in ("", "http://127.0.0.1:3000/mcp"):
        with pytest.raises(OutOfBounds, match="this gateway itself"):
            await asked.place(f"http://{shown}:8000/trust/bank/reset", named_by, ("http://127.0.0.1:8000",))
    assert await asked.place(f"http://{shown}:3000/token", "http://127.0.0.1:3000/mcp")


async def test_a_name_is_looked_up_once_and_that_is_where_the_connection_goes() -> None:
    answers = iter([[HERE], ["192.0.2.1"], ["192.0.2.1"]])

    async def changing(_host: str, _port: int) -> Sequence[str]:
        return next(answers)

    async with listener() as (port, heard):
        web = Web(outgoing=Outgoing(changing))
        reply = await web.get(f"http://rebound.localhost:{port}/keys")
        assert reply.status == 200
        assert f"Host: rebound.localhost:{port}".lower() in heard[0].lower()
        await web.close()


async def test_a_certificate_is_checked_for_the_name_and_not_for_the_address() -> None:
    seen: list[httpx2.Request] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200)

    async with httpx2.AsyncClient(transport=Pinned(httpx2.MockTransport(answer))) as client:
        await client.get("https://login.example/x", extensions={"place": PUBLIC})
    [request] = seen
    assert (request.url.host, request.extensions["sni_hostname"]) == (PUBLIC, "login.example")
    assert request.headers["host"] == "login.example"


async def test_metadata_of_a_server_on_this_machine_drive_nothing_else_on_it() -> None:
    """A token endpoint at another port: what listens there never said that it takes part in logins."""
    async with listener() as (victim, heard), listener() as (server, _):
        home = f"http://127.0.0.1:{server}"
        metadata = {
            "issuer": home,
            "authorization_endpoint": f"{home}/authorize",
            "token_endpoint": f"http://127.0.0.1:{victim}/trust/bank/reset",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        answers = {
            f"{home}/.well-known/oauth-protected-resource/mcp": {
                "resource": f"{home}/mcp",
                "authorization_servers": [home],
            },
            f"{home}/.well-known/oauth-authorization-server": metadata,
        }

        def answer(request: httpx2.Request) -> httpx2.Response:
            found = answers.get(str(request.url))
            return httpx2.Response(200 if found else 404, content=_sent(json.dumps(found or {}).encode()))

        web = Web(httpx2.MockTransport(answer))
        with pytest.raises(LoginFailed, match="another address on this machine"):
            await discovered(f"{home}/mcp", NO_AUTH, Challenge(), web)
        assert heard == []


async def test_a_login_that_names_the_gateway_itself_sends_nothing() -> None:
    async with listener() as (port, heard):
        asked = Outgoing()
        asked.listening(port)
        web = Web(outgoing=asked).named_by(f"http://127.0.0.1:{port}/mcp")
        for url in (f"http://127.0.0.1:{port}/callers/new", f"http://localhost:{port}/callers/new"):
            with pytest.raises((LoginFailed, Unanswered)):
                await web.post_form(url, {"grant_type": "authorization_code", "role": "manage"})
        assert heard == []
        await web.close()


async def _sent(body: bytes) -> AsyncIterator[bytes]:
    yield body


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, list[str]]]:
    """Something that listens on this machine, and the requests it got."""
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", Distance.THIS_MACHINE),
        ("LOCALHOST.", Distance.THIS_MACHINE),
        ("a.localhost", Distance.THIS_MACHINE),
        ("127.0.0.1", Distance.THIS_MACHINE),
        ("::ffff:127.0.0.1", Distance.THIS_MACHINE),
        (EVERYWHERE, Distance.THIS_MACHINE),
        ("10.0.0.1", Distance.THIS_NETWORK),
        ("fe80::1", Distance.THIS_NETWORK),
        ("169.254.169.254", Distance.THIS_NETWORK),
        (PUBLIC, Distance.ELSEWHERE),
        ("127.1", Distance.THIS_MACHINE),
        ("2130706433", Distance.THIS_MACHINE),
        ("0x7f.1", Distance.THIS_MACHINE),
        ("0", Distance.THIS_MACHINE),
        ("10.1", Distance.THIS_NETWORK),
        ("a\0b", Distance.ELSEWHERE),
        ("localhost.example", Distance.ELSEWHERE),
        ("", Distance.ELSEWHERE),
    ],
)
def test_a_host_is_as_near_as_it_is_written(host: str, expected: Distance) -> None:
    assert written_distance(host) is expected
    assert is_this_machine(host) is (expected is Distance.THIS_MACHINE)


def test_what_a_proxy_looks_up_is_judged_as_it_is_written() -> None:
    judging = outgoing()
    judging.listening(8765)
    judging.check_written("https://public.example/x", "https://public.example/")
    judging.check_written("http://127.0.0.1:9/x")
    with pytest.raises(OutOfBounds, match="itself"):
        judging.check_written("http://localhost:8765/servers")
    with pytest.raises(OutOfBounds, match="this machine"):
        judging.check_written("https://127.0.0.1/x", "https://public.example/")
    with pytest.raises(OutOfBounds, match="this network"):
        judging.check_written("https://10.0.0.1/x", "https://public.example/")


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            self.sent += 1
            yield chunk


def response(stream: Chunks, encoding: str = "") -> httpx2.Response:
    return httpx2.Response(200, headers={"content-encoding": encoding} if encoding else {}, stream=stream)


async def test_a_body_is_read_up_to_the_bound_and_no_further() -> None:
    assert await body_within(response(Chunks(b"hel", b"lo")), 5) == b"hello"
    endless = Chunks(*[b"hello"] * 100)
    with pytest.raises(UnreadableBody, match="longer than 9 bytes"):
        await body_within(response(endless), 9)
    assert endless.sent == 2


async def test_a_compressed_body_is_decompressed_up_to_the_bound() -> None:
    packed = gzip.compress(b"hello" * 1_000)
    assert await body_within(response(Chunks(packed[:20], packed[20:]), "gzip"), 5_000) == b"hello" * 1_000
    with pytest.raises(UnreadableBody, match="longer than 4,999 bytes"):
        await body_within(response(Chunks(packed), "gzip"), 4_999)


async def test_what_follows_a_compressed_body_is_not_read() -> None:
    junk = Chunks(gzip.compress(b"hello"), *[b"x" * 1_000] * 100)
    assert await body_within(response(junk, "gzip"), 5_000) == b"hello"
    assert junk.sent == 1


@pytest.mark.slow
async def test_a_bomb_is_not_decompressed_further_than_the_bound() -> None:
    bomb = gzip.compress(b"\0" * 300_000_000)
    tracemalloc.start()
    with pytest.raises(UnreadableBody):
        await body_within(response(Chunks(bomb), "gzip"), 1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"plainly not")])
async def test_an_encoding_that_was_not_requested_or_is_not_valid_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        await body_within(response(Chunks(body), encoding), 100)
