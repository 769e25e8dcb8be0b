"""Lines are taken as they arrive only when they arrive alone; nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.runtime.line_reader import LineReader

CHUNK = 1_000


def taking() -> tuple[LineReader, list[bytes]]:
    """A reader, and the lines that are taken from it as they arrive: all that it shows."""
    reader, taken = LineReader(CHUNK), list[bytes]()

    def take(line: bytes) -> bool:
        taken.append(line)
        return True

    reader.show_lines_to(take)
    return reader, taken


async def waiting(reader: LineReader) -> asyncio.Task[bytes]:
    """A task that waits for what must be read."""
    reading = asyncio.create_task(reader.read(CHUNK))
    await asyncio.sleep(0)
    return reading


async def test_a_line_that_arrives_alone_is_taken_and_wakes_nobody() -> None:
    reader, taken = taking()
    reading = await waiting(reader)
    reader.feed_data(b"one\n")
    reader.feed_data(b"two\n")
    await asyncio.sleep(0)
    assert (taken, reading.done()) == ([b"one", b"two"], False)
    reader.feed_eof()
    assert await reading == b""


@pytest.mark.parametrize("data", [b"one\ntwo\n", b"half", b"one\nhalf", b"x" * 100_000 + b"\n"], ids=len)
async def test_anything_but_one_short_line_is_read(data: bytes) -> None:
    reader, taken = taking()
    reading = await waiting(reader)
    reader.feed_data(data)
    assert (await reading, taken) == (data[:CHUNK], [])


async def test_the_rest_of_a_line_and_what_waits_behind_it_are_read() -> None:
    reader, taken = taking()
    reading = await waiting(reader)
    reader.feed_data(b"ha")
    assert await reading == b"ha"
    reading = await waiting(reader)
    reader.feed_data(b"lf\n")
    reader.feed_data(b"next\n")
    assert (await reading, taken) == (b"lf\nnext\n", [])
    await waiting(reader)
    reader.feed_data(b"alone\n")
    assert taken == [b"alone"]


async def test_a_line_that_comes_while_nobody_waits_is_read() -> None:
    reader, taken = taking()
    reader.feed_data(b"one\n")
    assert (await reader.read(CHUNK), taken) == (b"one\n", [])


async def test_all_there_is_can_be_read_at_once() -> None:
    reader = LineReader(CHUNK)
    reader.feed_data(b"one\ntwo")
    reader.feed_eof()
    assert await reader.read() == b"one\ntwo"


async def received(pieces: list[bytes], refused: set[bytes]) -> bytes:
    """What was taken and what was read, in this order of arrival."""
    reader, all_of_it = LineReader(8), bytearray()

    def takes(line: bytes) -> bool:
        if line in refused:
            return False
        all_of_it.extend(line + b"\n")
        return True

    async def read() -> None:
        while chunk := await reader.read(8):
            all_of_it.extend(chunk)

    reader.show_lines_to(takes)
    reading = asyncio.create_task(read())
    for piece in pieces:
        reader.feed_data(piece)
        if len(piece) % 2:
            await asyncio.sleep(0)
    reader.feed_eof()
    await reading
    return bytes(all_of_it)


PIECES = st.lists(st.text("ab\n", max_size=6).map(str.encode).filter(bool), max_size=30)


@given(PIECES, st.sets(st.sampled_from([b"", b"a", b"ab"])))
def test_nothing_is_lost_or_out_of_order_however_it_arrives(pieces: list[bytes], refused: set[bytes]) -> None:
    assert asyncio.run(received(pieces, refused)) == b"".join(pieces)
