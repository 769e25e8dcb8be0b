"""What one gateway tells another about a request that it passes on."""

from __future__ import annotations

from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.peers import ForwardedHeaders


async def key() -> bytes:
    return b"shared"


async def test_only_the_gateway_that_is_meant_reads_it_and_only_for_a_minute() -> None:
    now = 1_000.0
    sender = ForwardedHeaders("a", Signatures(key), lambda: now)
    meant, other = (ForwardedHeaders(own, Signatures(key), lambda: now) for own in ("b", "c"))
    stranger = ForwardedHeaders("b", Signatures(), lambda: now)
    header = await sender.written("b", "ada", "http://gateway/mcp", b"body")
    told = await meant.read(header)
    assert told is not None
    assert told.resource == "http://gateway/mcp"
    assert told.is_about(b"body", "ada")
    assert not told.is_about(b"another", "ada")
    assert not told.is_about(b"body", "bob")
    assert await other.read(header) is None
    assert await stranger.read(header) is None
    now += 61
    assert await meant.read(header) is None


async def test_what_a_client_makes_up_counts_for_nothing() -> None:
    gateway = ForwardedHeaders("b", Signatures(key))
    signed = await Signatures(key).sign("forwarded", "e30")
    for header in ("", ".", "e30.", f"e30.{signed}", "x" * 100_000, "ü.ü", f"e30.{signed}x"):
        assert await gateway.read(header) is None


async def test_a_proof_is_good_for_one_question_and_one_gateway() -> None:
    one, other = ForwardedHeaders("a", Signatures(key)), ForwardedHeaders("b", Signatures(key))
    proof = await one.proof("question", "a")
    assert await other.is_proof(proof, "question", "a")
    assert not await other.is_proof(proof, "another", "a")
    assert not await other.is_proof(proof, "question", "b")
    assert not await other.is_proof(None, "question", "a")
