"""A stream ends when its caller is no longer let in, and otherwise by itself."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.serving.http_gate import LastingStreams


async def test_a_stream_ends_when_its_caller_is_no_longer_let_in() -> None:
    looks: list[str] = []

    async def is_admitted() -> bool:
        looks.append("look")
        return len(looks) < 3

    ended = asyncio.Event()

    async def stream() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(10):
        await LastingStreams(0.001).run(stream(), is_admitted)
    assert ended.is_set()
    assert len(looks) == 3


async def test_a_stream_that_ends_or_fails_by_itself_does_so() -> None:
    async def is_admitted() -> bool:
        return True

    async def failing() -> None:
        raise TimeoutError("its own")

    async def short() -> None:
        return

    streams = LastingStreams(0.001)
    await streams.run(short(), is_admitted)
    with pytest.raises(TimeoutError, match="its own"):
        await streams.run(failing(), is_admitted)
