"""Somebody who signed in is remembered for a while, by all gateways on one database, and a limited number of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mcp_optimizer.dashboard.reception import WrongGuesses
from mcp_optimizer.dashboard.sign_ins import LASTS, TICKET_LASTS, SignIns
from mcp_optimizer.db.credentials import StoredSignIns
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.credentials import SignInKind
from mcp_optimizer.errors import CatalogError

Made = Callable[..., SignIns]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def made(tmp_path: Path, clock: Clock) -> AsyncIterator[Made]:
    """Makes what one gateway knows of sign-ins; all share a database."""
    database = await open_database(tmp_path / "catalog.sqlite")

    async def stored() -> StoredSignIns:
        return StoredSignIns(database)

    yield lambda since=0.0: SignIns(stored, clock, since=since)
    await database.close()


@pytest.mark.slow
async def test_whoever_signs_in_again_and_again_ends_only_their_own(made: Made) -> None:
    known = made()
    first, token = await known.with_key("another"), await known.with_token("a good long token")
    same = [await known.with_key("one") for _ in range(60)]
    assert len(set(same)) == 60
    assert sum([await known.find(kept) is not None for kept in same]) == 50
    assert await known.find(same[-1]) is not None
    assert await known.find(first) is not None
    assert await known.find(token, "a good long token") is not None


async def test_a_sign_in_lasts_twelve_hours_however_often_it_is_used(made: Made, clock: Clock) -> None:
    known = made()
    kept = await known.with_key("one")
    for hours, holds in ((1, True), (6, True), (11.9, True), (12, False)):
        clock.now = 1_000.0 + hours * 3_600
        assert (await known.find(kept) is not None) is holds
    assert LASTS == 12 * 3_600


async def test_a_sign_in_from_before_the_gateway_listened_is_not_valid_at_it(made: Made, clock: Clock) -> None:
    before = made()
    secret = await before.enter(await before.ticket())
    ticket = await before.ticket()
    key, token = await before.with_key("one"), await before.with_token("a good long token")
    assert secret is not None
    clock.now += 60
    after = made(since=clock.now)
    for kept in (secret, key, token):
        assert await after.find(kept, "a good long token") is None
    assert await after.enter(ticket) is None
    secret = await after.enter(await after.ticket())
    assert secret is not None
    assert await after.find(secret) is not None


async def test_what_one_gateway_was_told_all_know_until_one_is_told_to_end_it(made: Made) -> None:
    here, there = made(), made()
    kept = await here.with_key("one")
    found = await there.find(kept)
    assert found is not None
    assert (found.kind, found.bound_to) == (SignInKind.KEY, "one")
    await there.end(kept)
    assert await here.find(kept) is None


@pytest.mark.slow
async def test_of_a_hundred_who_show_one_ticket_at_once_one_is_let_in(made: Made) -> None:
    gateways = [made() for _ in range(100)]
    ticket = await gateways[0].ticket()
    let_in = [kept for kept in await asyncio.gather(*(one.enter(ticket) for one in gateways)) if kept is not None]
    assert len(let_in) == 1
    found = await gateways[0].find(let_in[0])
    assert found is not None
    assert found.kind is SignInKind.OWNER


async def test_a_ticket_is_no_sign_in_and_a_sign_in_no_ticket(made: Made) -> None:
    known = made()
    ticket, kept = await known.ticket(), await known.with_key("one")
    assert await known.find(ticket) is None
    assert await known.enter(kept) is None
    for strange in ("", "x", "x" * 10_000, "\udc80", "../..", "\0"):
        assert await known.enter(strange) is None
        assert await known.find(strange) is None


async def test_a_ticket_is_good_for_two_minutes(made: Made, clock: Clock) -> None:
    known = made()
    early, late = await known.ticket(), await known.ticket()
    clock.now += TICKET_LASTS - 1
    assert await known.enter(early) is not None
    clock.now += 1
    assert await known.enter(late) is None


async def test_another_token_of_the_dashboard_ends_what_the_old_one_opened(made: Made) -> None:
    known = made()
    kept = await known.with_token("the token of May")
    assert await known.find(kept, "the token of May") is not None
    assert await known.find(kept, "the token of June") is None
    assert await known.find(kept) is None


async def test_without_a_database_nobody_is_taken_for_somebody() -> None:
    async def stored() -> None:
        return None

    with pytest.raises(CatalogError):
        await SignIns(stored).find("x" * 43)


def test_an_address_that_guessed_ten_times_waits_and_others_do_not(clock: Clock) -> None:
    guesses = WrongGuesses(clock)
    for _ in range(9):
        guesses.note("10.0.0.1")
    assert not guesses.are_too_many("10.0.0.1")
    guesses.note("10.0.0.1")
    assert guesses.are_too_many("10.0.0.1")
    assert not guesses.are_too_many("10.0.0.2")
    clock.now += 61
    assert not guesses.are_too_many("10.0.0.1")


def test_a_million_addresses_leave_a_limited_number(clock: Clock) -> None:
    guesses = WrongGuesses(clock)
    for number in range(20_000):
        guesses.note(f"fd00::{number:x}")
    assert len(guesses) == 1_000
