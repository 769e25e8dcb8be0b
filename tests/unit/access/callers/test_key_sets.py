"""The keys of an issuer: fetched once, looked for again rarely, and kept while their issuer fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcp_optimizer.access.callers.keys import CannotVerify, Rejected
from tests.unit.access.callers.issuing import ISSUER, OTHER_KEY, RESOURCE, RSA_KEY, IssuerWeb, public, token
from tests.waiting import other_tasks


async def test_a_key_of_the_metadata_is_fetched_once() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier()
    await asyncio.gather(*(verifier.principal(token(sub=f"user {n}"), RESOURCE) for n in range(50)))
    assert issuer.fetches() == 1


@pytest.mark.slow
async def test_an_unknown_key_is_looked_for_once_in_ten_seconds() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier()
    await verifier.principal(token(), RESOURCE)
    issuer.keys.append(public(OTHER_KEY, "new"))
    assert await verifier.principal(token(OTHER_KEY, "new"), RESOURCE)
    assert issuer.fetches() == 2
    made_up = (verifier.principal(token(OTHER_KEY, f"made up {n}"), RESOURCE) for n in range(500))
    assert {type(error) for error in await asyncio.gather(*made_up, return_exceptions=True)} == {Rejected}
    assert issuer.fetches() == 2
    issuer.now += 11
    made_up = (verifier.principal(token(OTHER_KEY, f"made up {n}"), RESOURCE) for n in range(500))
    assert {type(error) for error in await asyncio.gather(*made_up, return_exceptions=True)} == {Rejected}
    assert issuer.fetches() == 3


@pytest.mark.slow
async def test_a_key_id_of_any_length_is_only_unknown() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier()
    for _ in range(3):
        with pytest.raises(Rejected):
            await verifier.principal(token(OTHER_KEY, "k" * 1_000_000), RESOURCE)
    assert issuer.fetches() == 0


async def test_old_keys_stay_in_use_while_their_issuer_fails() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier()
    await verifier.principal(token(), RESOURCE)
    issuer.status = 503
    issuer.now += 5_000
    assert await verifier.principal(token(sub="other"), RESOURCE)
    with pytest.raises(CannotVerify):
        await verifier.principal(token(OTHER_KEY, "new"), RESOURCE)
    assert await verifier.principal(token(sub="another"), RESOURCE)


async def test_a_key_that_its_issuer_withdrew_is_forgotten() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier()
    await verifier.principal(token(), RESOURCE)
    issuer.keys = [public(RSA_KEY, "rsa")]
    issuer.now += 901
    await verifier.principal(token(sub="still"), RESOURCE)
    await other_tasks()
    with pytest.raises(Rejected):
        await verifier.principal(token(sub="no more"), RESOURCE)


async def test_an_issuer_that_cannot_be_reached_is_asked_again_later() -> None:
    issuer = IssuerWeb()
    issuer.status = 500
    verifier = issuer.verifier()
    for _ in range(20):
        with pytest.raises(CannotVerify):
            await verifier.principal(token(), RESOURCE)
    assert len(issuer.asked) == 2
    issuer.status = 200
    issuer.now += 11
    assert await verifier.principal(token(), RESOURCE)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 65_536


@pytest.mark.parametrize("keys", [None, "x", {}, [], [1, None, {}], [{"kty": "RSA", "kid": "ec"}], [{"kty": "EC"}]])
async def test_keys_of_another_shape_open_nothing(keys: Any) -> None:
    issuer = IssuerWeb()
    issuer.keys = keys
    with pytest.raises((Rejected, CannotVerify)):
        await issuer.verifier().principal(token(), RESOURCE)


@pytest.mark.slow
async def test_a_list_of_keys_without_an_end_is_not_read_to_it() -> None:
    issuer = IssuerWeb()
    issuer.said = endless
    with pytest.raises(CannotVerify):
        await issuer.verifier(jwks_url=f"{ISSUER}/ask").principal(token(), RESOURCE)
    issuer.said = lambda: b" " * 100_000_000
    with pytest.raises(CannotVerify):
        await issuer.verifier(jwks_url=f"{ISSUER}/ask").principal(token(), RESOURCE)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://other.example", "jwks_uri": f"{ISSUER}/keys"},
        {"issuer": ISSUER, "jwks_uri": "http://login.example/keys"},
        {"issuer": ISSUER, "jwks_uri": "http://127.0.0.1/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER, "jwks_uri": 7},
        {"issuer": ISSUER},
    ],
)
async def test_metadata_of_another_or_that_point_elsewhere_are_not_followed(metadata: dict[str, Any]) -> None:
    issuer = IssuerWeb()
    issuer.metadata = metadata
    with pytest.raises(CannotVerify):
        await issuer.verifier().principal(token(), RESOURCE)
    assert issuer.fetches() == 0
