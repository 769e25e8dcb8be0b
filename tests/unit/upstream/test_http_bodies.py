"""Bodies and events of a server: unpacked and read within bounds."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator

import httpx2
import pytest

from mcp_optimizer.upstream.transports.http_client import BodyUnreadable, SseEvent, events, whole_body

MOST = 1_000_000


class Sent(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def response(*chunks: bytes, packing: str = "") -> httpx2.Response:
    headers = {"content-encoding": packing} if packing else {}
    return httpx2.Response(200, headers=headers, stream=Sent(*chunks))


async def read(*chunks: bytes, most: int = MOST) -> list[SseEvent]:
    return [event async for event in events(response(*chunks), most)]


async def test_a_packed_body_is_unpacked() -> None:
    packed = gzip.compress(b"hello" * 1_000)
    assert await whole_body(response(packed[:20], packed[20:], packing="gzip"), MOST) == b"hello" * 1_000


@pytest.mark.slow
async def test_a_bomb_is_not_unpacked_further_than_the_bound() -> None:
    bomb = gzip.compress(b"\0" * 300_000_000)
    tracemalloc.start()
    with pytest.raises(BodyUnreadable, match=r"limits\.message_bytes"):
        await whole_body(response(bomb, packing="gzip"), MOST)
    assert tracemalloc.get_traced_memory()[1] < 10 * MOST
    tracemalloc.stop()


@pytest.mark.parametrize("packing", ["br", "zstd", "gzip, gzip", "nonsense"])
async def test_a_packing_that_nobody_asked_for_is_refused(packing: str) -> None:
    with pytest.raises(BodyUnreadable):
        await whole_body(response(b"x", packing=packing), MOST)


async def test_what_is_no_gzip_is_refused() -> None:
    with pytest.raises(BodyUnreadable, match="not valid gzip"):
        await whole_body(response(b"plainly not", packing="gzip"), MOST)


async def test_an_event_has_its_fields_and_nothing_of_fields_that_mean_nothing() -> None:
    [event] = await read(b": hi\nevent: endpoint\nid: 5\nretry: 250\ndata: a\r\ndata:b\njunk: x\njunk2\n\n")
    assert event == SseEvent("endpoint", bytearray(b"a\nb"), "5", 0.25)


@pytest.mark.parametrize("retry", [b"9" * 400, b"-1", b"1e9", b"", b"x", "٣".encode()])
async def test_a_pause_that_is_no_small_number_is_none(retry: bytes) -> None:
    [event] = await read(b"retry: " + retry + b"\ndata: a\n\n")
    assert event.retry is None


@pytest.mark.parametrize("name", [b"a\0b", b"x" * 2_000])
async def test_an_event_id_that_cannot_go_back_in_a_header_is_none(name: bytes) -> None:
    [event] = await read(b"id: " + name + b"\ndata: a\n\n")
    assert event.id is None


async def test_an_event_over_the_bound_comes_without_its_data() -> None:
    found = await read(*[b"data: " + b"x" * 400 + b"\n"] * 8, b"\n", b"data: small\n\n", most=1_000)
    assert [(event.is_overlong, event.data) for event in found] == [(True, None), (False, bytearray(b"small"))]


async def test_an_event_of_one_endless_line_is_given_up() -> None:
    with pytest.raises(BodyUnreadable, match="no end"):
        await read(*[b"data: " + b"x" * 1_000] * 10, most=1_000)


async def test_an_event_of_lines_without_an_end_is_given_up_too() -> None:
    with pytest.raises(BodyUnreadable, match="no end"):
        await read(*[b"data: x\n" * 100] * 100, most=1_000)
