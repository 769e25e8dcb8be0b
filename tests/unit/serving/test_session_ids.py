"""Session ids: what a gateway reads from one that another gateway made, and what it refuses to read."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.session_ids import LONGEST_ID, SESSION_DAYS, Introduction, SessionIds

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "clientInfo": {"name": "a client", "version": "1.2"},
    "capabilities": {"elicitation": {}, "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}},
}
DAY = 86_400


def shared(key: bytes | None = b"of the database") -> Signatures:
    async def read() -> bytes | None:
        return key

    return Signatures(read)


async def test_another_gateway_with_the_same_key_reads_what_the_client_said() -> None:
    made = await SessionIds(shared()).new(Introduction.of(HELLO), "key:ada")
    said = await SessionIds(shared()).read(made, "key:ada")
    assert said is not None
    assert said.params == HELLO
    assert made.isascii()
    assert len(made) < 400


@pytest.mark.parametrize(("key", "principal"), [(b"another", "key:ada"), (None, "key:ada"), (b"of the database", "x")])
async def test_an_id_means_nothing_under_another_key_or_for_another_caller(key: bytes | None, principal: str) -> None:
    made = await SessionIds(shared()).new(Introduction.of(HELLO), "key:ada")
    assert await SessionIds(shared(key)).read(made, principal) is None


async def test_an_id_is_good_for_a_time() -> None:
    made = await SessionIds(shared(), lambda: 0.0).new(Introduction.of(HELLO), "a")
    almost, after = SESSION_DAYS * DAY - 1.0, SESSION_DAYS * DAY + 1.0
    assert await SessionIds(shared(), lambda: almost).read(made, "a") is not None
    assert await SessionIds(shared(), lambda: after).read(made, "a") is None


async def test_a_client_that_says_very_much_keeps_what_fits_into_a_header() -> None:
    noise = {f"x{number}": {"a": f"{number * 7919:x}"} for number in range(2_000)}
    hello = {**HELLO, "capabilities": {"roots": {"listChanged": True}, "experimental": noise}}
    made = await SessionIds(shared()).new(Introduction.of(hello), "a")
    said = await SessionIds(shared()).read(made, "a")
    assert len(made) <= LONGEST_ID
    assert said is not None
    assert said.capabilities == {"roots": {"listChanged": True}}


@pytest.mark.parametrize("params", [{}, {"clientInfo": 1, "capabilities": []}, {"protocolVersion": ["2025-06-18"]}])
async def test_whatever_a_client_says_gives_an_id_that_can_be_read(params: dict[str, Any]) -> None:
    ids = SessionIds(shared())
    assert await ids.read(await ids.new(Introduction.of(params), "a"), "a") is not None


async def test_what_was_signed_before_the_key_could_be_read_stays_good_in_its_process() -> None:
    keys: list[bytes | None] = [None]
    now = [0.0]

    async def read() -> bytes | None:
        return keys[0]

    ids = SessionIds(Signatures(read, lambda: now[0]))
    early = await ids.new(Introduction.of(HELLO), "a")
    assert await SessionIds(shared()).read(early, "a") is None
    keys[0], now[0] = b"of the database", 10.0
    late = await ids.new(Introduction.of(HELLO), "a")
    assert await ids.read(early, "a") is not None
    assert await SessionIds(shared()).read(late, "a") is not None
