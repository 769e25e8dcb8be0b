"""A gateway knows the keys of its database, and asks for them rarely, however many it is shown."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mcp_optimizer.access.callers.keys import (
    CannotVerify,
    KeyStore,
    KnownKeys,
    Rejected,
    Wanted,
    new_key,
    opened_keys,
    rotate_key,
)
from mcp_optimizer.db.credentials import KeysMark, StoredKeys
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.credentials import ApiKey
from mcp_optimizer.errors import CatalogError
from tests.waiting import until


class Counted:
    """The real store, which counts how often it is read and written, and can be made to fail."""

    def __init__(self, stored: StoredKeys) -> None:
        self._stored = stored
        self.looks = self.reads = 0
        self.used: list[Mapping[str, int]] = []
        self.fails = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def mark(self) -> KeysMark:
        self.looks += 1
        if self.fails:
            raise CatalogError("the disk is on fire")
        mark = await self._stored.mark()
        await self.goes_on.wait()
        return mark

    async def known(self, now_ms: int) -> list[ApiKey]:
        self.reads += 1
        return await self._stored.known(now_ms)

    async def write_used(self, used: Mapping[str, int]) -> None:
        self.used.append(used)
        await self._stored.write_used(used)


class World:
    """A database with keys, and a gateway that verifies them by a clock of its own."""

    def __init__(self, stored: StoredKeys) -> None:
        self.stored, self.counted = stored, Counted(stored)
        self.now = 100.0
        self.known = KnownKeys(self._store, lambda: self.now)

    async def _store(self) -> KeyStore:
        return self.counted

    async def made(
        self, name: str = "ci", servers: list[str] | None = None, risk: Risk = Risk.READ
    ) -> tuple[ApiKey, str]:
        key, text = new_key(Wanted(name, servers, risk), datetime.now(UTC))
        assert await self.stored.add(key, 100) == ""
        return key, text


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_keys(tmp_path / "catalog.db") as stored:
        made = World(stored)
        yield made
        await made.known.close()


async def test_a_key_opens_what_it_was_made_for(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        key, text = await here.made(servers=["a", "b"], risk=Risk.WRITE)
        principal = await here.known.principal(text)
        assert (principal.id, principal.servers, principal.risk) == (f"key:{key.id}", frozenset("ab"), Risk.WRITE)


async def test_a_good_key_is_verified_without_the_database_for_a_while(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        for _ in range(1_000):
            await here.known.principal(text)
        assert (here.counted.looks, here.counted.reads) == (1, 1)


async def test_what_another_process_did_is_known_after_two_seconds(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        await here.stored.revoke("ci", time.time_ns() // 1_000_000)
        _, new = await here.made("new")
        here.now += 2.01
        with pytest.raises(Rejected):
            await here.known.principal(text)
        assert (await here.known.principal(new)).name == "key:new"


async def test_what_another_process_did_is_known_at_the_next_use_if_it_was_announced(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        await here.stored.revoke("ci", time.time_ns() // 1_000_000)
        await here.known.principal(text)
        here.known.changed()
        with pytest.raises(Rejected):
            await here.known.principal(text)


async def test_a_look_that_began_before_the_announcement_does_not_count(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        here.now += 2.01
        here.counted.goes_on.clear()
        looks = here.counted.looks
        using = asyncio.create_task(here.known.principal(text))
        await until(lambda: here.counted.looks > looks)
        await here.stored.revoke("ci", time.time_ns() // 1_000_000)
        here.now += 0.1
        here.known.changed()
        here.counted.goes_on.set()
        with pytest.raises(Rejected):
            await using


async def test_whoever_showed_a_key_before_holds_it_until_it_ends(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        key, text = await here.made()
        assert await here.known.holder(key.id) == await here.known.principal(text)
        await here.stored.revoke("ci", time.time_ns() // 1_000_000)
        here.now += 2.01
        for key_id in (key.id, "", "no such"):
            with pytest.raises(Rejected):
                await here.known.holder(key_id)


async def test_a_key_in_use_is_looked_up_ahead_of_time_and_nobody_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        here.now += 1.5
        await here.known.principal(text)
        await until(lambda: here.counted.looks == 2)
        assert here.counted.reads == 1


async def test_an_expired_key_is_refused_without_a_look(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        key, text = await here.made()
        # On a busy machine, one that expires soon has expired before it is known.
        for digit, life_ms in enumerate((200, 2_000, 8_000)):
            ended = replace(
                key, id=str(digit) * 12, name=f"old-{digit}", expires_at_ms=time.time_ns() // 10**6 + life_ms
            )
            assert await here.stored.add(ended, 100) == ""
            old = text.replace(key.id, ended.id)
            with suppress(Rejected):
                await here.known.principal(old)
                break
            here.now += 100  # and looks again
        looks = here.counted.looks
        await until(lambda: not ended.is_living(time.time_ns() // 1_000_000))
        with pytest.raises(Rejected):
            await here.known.principal(old)
        assert here.counted.looks == looks > 0


@pytest.mark.slow
async def test_a_flood_of_unknown_keys_neither_loads_the_database_nor_keeps_anything(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        for number in range(20_000):
            with pytest.raises(Rejected):
                await here.known.principal(f"mcpo_{number:012}_{secrets.token_urlsafe(32)}")
        assert here.counted.looks == 1
        here.now += 0.3
        flood = (here.known.principal(f"mcpo_{number:012}_{'x' * 43}") for number in range(500))
        refused = await asyncio.gather(*flood, return_exceptions=True)
        assert {type(error) for error in refused} == {Rejected}
        assert here.counted.looks == 2
        assert (await here.known.principal(text)).name == "key:ci"


async def test_use_is_noted_once_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        key, text = await here.made()
        for _ in range(3):
            await here.known.principal(text)
        await until(lambda: len(here.counted.used) == 1)
        here.now += 61
        await here.known.principal(text)
        await until(lambda: len(here.counted.used) == 2)
        await here.known.close()
        [kept] = await here.stored.all()
        assert kept.used_at_ms is not None
        assert kept.used_at_ms >= key.created_at_ms


async def test_while_the_database_fails_nobody_is_let_in_and_nobody_is_called_unknown(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        _, text = await here.made()
        await here.known.principal(text)
        here.counted.fails = True
        here.now += 1.5
        assert await here.known.principal(text)
        here.now += 1
        for _ in range(100):
            with pytest.raises(CannotVerify):
                await here.known.principal(text)
        assert here.counted.looks <= 3
        here.counted.fails = False
        here.now += 1
        assert await here.known.principal(text)


async def test_a_replaced_key_works_in_the_overlap_and_then_says_that_there_is_another(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        key, old = await here.made()
        before = await here.known.principal(old)
        _, new = await rotate_key(here.stored, "ci", timedelta(hours=1))
        here.known.changed()
        assert await here.known.principal(old) == await here.known.principal(new) == before
        _, newest = await rotate_key(here.stored, "ci", timedelta())
        here.known.changed()
        assert await here.known.principal(newest) == before
        for text in (old, new):
            with pytest.raises(Rejected, match="another one has replaced it"):
                await here.known.principal(text)
        # Only the holder of the old key is told that there is a new one.
        with pytest.raises(Rejected, match="unknown, expired or revoked"):
            await here.known.principal(f"mcpo_{key.id}_{'a' * 43}")
        with pytest.raises(Rejected):
            await here.known.holder(key.id)
        await here.stored.revoke("ci", time.time_ns() // 1_000_000)
        here.known.changed()
        for text in (old, new, newest):
            with pytest.raises(Rejected, match="unknown, expired or revoked"):
                await here.known.principal(text)
