"""Tokens that their issuer is asked about: rarely, once at a time, and believed only if it says yes."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from mcp_optimizer.access.callers.introspection import Introspection
from mcp_optimizer.access.callers.keys import CannotVerify, Rejected, ScopesMissing
from tests.unit.access.callers.issuing import ISSUER, RESOURCE, IssuerWeb, claims, token_issuer
from tests.waiting import until


def introspection(issuer: IssuerWeb, **said: Any) -> Introspection:
    return Introspection(
        token_issuer(introspection_url=f"{ISSUER}/ask", client_id="us", client_secret="s: e", **said),
        issuer.web,
        issuer.clock,
    )


def active(**changes: Any) -> dict[str, Any]:
    return {"active": True, **claims(**changes)}


async def test_an_active_token_is_its_holder_and_asked_about_once_a_minute() -> None:
    issuer = IssuerWeb()
    issuer.said = active(exp=int(time.time()) + 3_600)
    asking = introspection(issuer)
    for _ in range(5):
        assert (await asking.principal("opaque", RESOURCE)).id == f"token:{ISSUER} ada"
    [request] = issuer.asked
    assert parse_qs(request.content.decode())["token"] == ["opaque"]
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"us:s%3A%20e").decode()
    issuer.now += 61
    issuer.said = {"active": False}
    with pytest.raises(Rejected):
        await asking.principal("opaque", RESOURCE)


@pytest.mark.parametrize(
    "said",
    [
        {"active": False},
        active(aud="https://other.example"),
        active(aud=None),
        active(iss="https://other.example"),
        active(exp=1),
        active(exp="x"),
        active(nbf=int(time.time()) + 900),
        active(sub=None),
    ],
)
async def test_a_token_that_is_no_good_for_us_is_rejected_and_that_is_remembered_shortly(said: dict[str, Any]) -> None:
    issuer = IssuerWeb()
    issuer.said = said
    asking = introspection(issuer)
    for _ in range(3):
        with pytest.raises(Rejected):
            await asking.principal("opaque", RESOURCE)
    assert len(issuer.asked) == 1
    issuer.now += 6
    issuer.said = active()
    assert await asking.principal("opaque", RESOURCE)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536


@pytest.mark.parametrize(
    "said", [{}, {"active": "true"}, {"active": 1}, endless, lambda: b"[" * 100_000, lambda: b"\xff"]
)
async def test_an_answer_that_is_none_is_no_yes_and_no_no(said: Any) -> None:
    issuer = IssuerWeb()
    issuer.said = said
    with pytest.raises(CannotVerify):
        await introspection(issuer).principal("opaque", RESOURCE)


@pytest.mark.parametrize("status", [302, 400, 401, 500])
async def test_an_endpoint_that_refuses_us_says_nothing_about_the_token(status: int) -> None:
    issuer = IssuerWeb()
    issuer.said, issuer.status = active(), status
    with pytest.raises(CannotVerify):
        await introspection(issuer).principal("opaque", RESOURCE)


async def test_an_answer_is_not_remembered_past_the_end_of_its_token() -> None:
    issuer = IssuerWeb()
    issuer.said = active(exp=time.time() + 5)
    asking = introspection(issuer)
    await asking.principal("opaque", RESOURCE)
    issuer.now += 6
    await asking.principal("opaque", RESOURCE)
    assert len(issuer.asked) == 2


async def test_the_issuer_may_leave_out_its_name_and_the_end() -> None:
    issuer = IssuerWeb()
    issuer.said = active(iss=None, exp=None)
    assert await introspection(issuer).principal("opaque", RESOURCE)


async def test_many_calls_with_one_token_ask_once() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer)
    found = await asyncio.gather(*(asking.principal("opaque", RESOURCE) for _ in range(100)))
    assert len(set(found)) == len(issuer.asked) == 1


async def test_a_flood_of_made_up_tokens_is_passed_on_only_in_part() -> None:
    issuer = IssuerWeb()
    asking = introspection(issuer)
    flood = (asking.principal(f"made up {number}", RESOURCE) for number in range(1_000))
    refused = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(error) for error in refused} == {Rejected, CannotVerify}
    assert len(issuer.asked) == 32


class Held:
    """An issuer that answers about no token until it is told to."""

    def __init__(self, issuer: IssuerWeb) -> None:
        self._issuer = issuer
        self._may_answer = asyncio.Event()
        issuer.said = self._body

    async def _body(self) -> AsyncIterator[bytes]:
        await self._may_answer.wait()
        yield json.dumps(active()).encode()

    def answer(self) -> None:
        self._may_answer.set()


def flood(asking: Introspection, address: str, number: int = 1_000) -> list[asyncio.Future[Any]]:
    made_up = (asking.principal(f"made up {address} {at}", RESOURCE, address) for at in range(number))
    return [asyncio.ensure_future(one) for one in made_up]


async def test_a_flood_of_made_up_tokens_takes_no_place_of_a_token_that_was_good() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer)
    await asking.principal("good", RESOURCE, "192.0.2.1")
    issuer.now += 61
    held, asked = Held(issuer), len(issuer.asked)
    refused = [one for number in range(50) for one in flood(asking, f"198.51.100.{number}", 100)]
    await until(lambda: len(issuer.asked) == asked + 64)
    good = asyncio.ensure_future(asking.principal("good", RESOURCE, "198.51.100.1"))
    await until(lambda: len(issuer.asked) == asked + 65)
    held.answer()
    assert (await good).name == "corp:ada"
    await asyncio.gather(*refused, return_exceptions=True)


async def test_a_flood_from_one_address_leaves_places_for_new_tokens_from_others() -> None:
    issuer = IssuerWeb()
    asking, held = introspection(issuer), Held(issuer)
    refused = flood(asking, "198.51.100.1")
    await until(lambda: len(issuer.asked) == 32)
    new = [asyncio.ensure_future(asking.principal("new", RESOURCE, "192.0.2.1"))]
    new += [asyncio.ensure_future(asking.principal(f"new {at}", RESOURCE, f"192.0.2.{at}")) for at in range(2, 20)]
    await until(lambda: len(issuer.asked) == 32 + len(new))
    held.answer()
    assert {(await one).name for one in new} == {"corp:ada"}
    await asyncio.gather(*refused, return_exceptions=True)


async def test_the_holder_of_many_good_tokens_leaves_places_for_others() -> None:
    issuer = IssuerWeb()
    asking = introspection(issuer)
    issuer.said = active(sub="eve")
    for number in range(100):
        await asking.principal(f"of eve {number}", RESOURCE)
    issuer.said = active()
    await asking.principal("of ada", RESOURCE)
    issuer.now += 61
    held, asked = Held(issuer), len(issuer.asked)
    many = [asyncio.ensure_future(asking.principal(f"of eve {number}", RESOURCE)) for number in range(100)]
    await until(lambda: len(issuer.asked) == asked + 32)
    ada = asyncio.ensure_future(asking.principal("of ada", RESOURCE))
    await until(lambda: len(issuer.asked) == asked + 33)
    held.answer()
    assert (await ada).name == "corp:ada"
    await asyncio.gather(*many, return_exceptions=True)


@pytest.mark.slow
async def test_made_up_tokens_make_no_good_one_forgotten() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer)
    await asking.principal("good", RESOURCE)
    issuer.said = {"active": False}
    for batch in range(250):
        await asyncio.gather(*flood(asking, f"{batch}", 20), return_exceptions=True)
    asked = len(issuer.asked)
    assert asked > 4_096
    await asking.principal("good", RESOURCE)
    assert len(issuer.asked) == asked


async def test_a_token_that_is_revoked_waits_among_the_others_again() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer)
    await asking.principal("revoked", RESOURCE, "198.51.100.1")
    issuer.now += 61
    issuer.said = {"active": False}
    with pytest.raises(Rejected):
        await asking.principal("revoked", RESOURCE, "198.51.100.1")
    issuer.now += 6
    held, asked = Held(issuer), len(issuer.asked)
    others = flood(asking, "198.51.100.1", 32)
    await until(lambda: len(issuer.asked) == asked + 32)
    with pytest.raises(CannotVerify):
        await asking.principal("revoked", RESOURCE, "198.51.100.1")
    held.answer()
    await asyncio.gather(*others)


async def test_places_come_back_when_the_issuer_has_answered_or_failed() -> None:
    issuer = IssuerWeb()
    asking = introspection(issuer)
    for status in (200, 500, 200):
        issuer.status = status
        found = await asyncio.gather(*flood(asking, f"of {status} {issuer.now}", 32), return_exceptions=True)
        assert not any("Too many" in str(error) for error in found)
        issuer.now += 6


async def test_whoever_stops_waiting_does_not_stop_the_others() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer)
    first, second = (asyncio.ensure_future(asking.principal("opaque", RESOURCE)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "corp:ada"


async def test_missing_scopes_are_remembered_as_such() -> None:
    issuer = IssuerWeb()
    issuer.said = active()
    asking = introspection(issuer, required_scopes=["mcp:use"])
    for _ in range(2):
        with pytest.raises(ScopesMissing) as missing:
            await asking.principal("opaque", RESOURCE)
        assert missing.value.scopes == ("mcp:use",)
    assert len(issuer.asked) == 1
