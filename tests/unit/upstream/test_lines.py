"""Lines from chunks: any chunking gives the same lines, and none of them is longer than the bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.upstream.transports.bounded_lines import EndlessLine, OverlongLine, lines


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def read(data: bytes, size: int, most: int) -> list[bytes | OverlongLine]:
    return [line if isinstance(line, OverlongLine) else bytes(line) async for line in lines(chunks(data, size), most)]


@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"")), max_size=10), st.integers(1, 50))
async def test_lines_come_out_as_they_went_in_however_they_are_cut(written: list[bytes], size: int) -> None:
    assert await read(b"".join(line + b"\n" for line in written), size, 1_000) == written


async def test_a_line_over_the_bound_is_dropped_and_the_next_ones_come() -> None:
    long = b'{"id":7,' + b"x" * 1_000 + b',"end":1}'
    found = await read(b"before\n" + long + b"\nafter\n", 10, 500)
    assert [found[0], found[2]] == [b"before", b"after"]
    assert isinstance(found[1], OverlongLine)
    assert found[1].head.startswith(b'{"id":7,')
    assert found[1].tail.endswith(b',"end":1}')


async def test_a_line_without_an_end_is_given_up() -> None:
    with pytest.raises(EndlessLine):
        await read(b"x" * 100_000, 100, 1_000)
