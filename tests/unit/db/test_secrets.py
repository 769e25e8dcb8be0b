"""Stored secrets: encrypted rows of which one process at a time may renew each, all with the same key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.secrets import SealedRows, SecretRow, StoredSecrets
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.errors import CatalogError

KEY = b"key-id-1"


@asynccontextmanager
async def opened(place: Path | str | None) -> AsyncIterator[StoredSecrets]:
    database = await open_database(place)
    try:
        yield StoredSecrets(database)
    finally:
        await database.close()


async def begin(stored: StoredSecrets, key: bytes = KEY) -> None:
    await stored.change_key(lambda _: SealedRows(key, ()))


async def test_a_secret_is_read_as_it_was_written_and_gone_when_deleted(place: Path | str) -> None:
    async with opened(place) as stored:
        await begin(stored)
        assert await stored.write("value", "a", b"\x00\xff", KEY)
        assert await stored.write("value", "a", b"new", KEY)
        assert await stored.write("login", "a", b"other", KEY)
        assert (await stored.read("value", "a"), await stored.read("login", "a")) == (b"new", b"other")
        assert list(await stored.names("value")) == ["a"]
        assert (await stored.names("value"))["a"] > 1_700_000_000_000
        assert await stored.delete("value", "a")
        assert not await stored.delete("value", "a")
        assert (await stored.read("value", "a"), await stored.names("value")) == (None, {})
        assert await stored.read("login", "a") == b"other"


async def test_a_row_encrypted_with_another_key_is_refused(place: Path | str) -> None:
    async with opened(place) as stored:
        assert await stored.key_id() is None
        assert not await stored.write("value", "a", b"x", KEY)
        await begin(stored)
        assert await stored.key_id() == KEY
        assert not await stored.write("value", "a", b"x", b"another")
        assert await stored.read("value", "a") is None


async def test_a_change_of_the_key_sees_everything_and_writes_all_or_nothing(place: Path | str) -> None:
    async with opened(place) as stored:
        await begin(stored)
        await stored.write("value", "a", b"1", KEY)
        await stored.write("login", "b", b"2", KEY)
        await stored.claim("login", "only claimed", 2_000, 1_000)
        when = await stored.names("value")

        def fail(held: SealedRows) -> SealedRows:
            assert held == (KEY, (SecretRow("login", "b", b"2"), SecretRow("value", "a", b"1")))
            raise CatalogError("in the middle")

        with pytest.raises(CatalogError, match="in the middle"):
            await stored.change_key(fail)
        assert (await stored.key_id(), await stored.read("value", "a")) == (KEY, b"1")
        await stored.change_key(lambda held: SealedRows(b"2nd", tuple(r._replace(body=r.body * 2) for r in held.rows)))
        assert (await stored.read("value", "a"), await stored.read("login", "b")) == (b"11", b"22")
        assert (await stored.key_id(), await stored.names("value")) == (b"2nd", when)
        assert await stored.settle()


async def test_one_at_a_time_claims_a_secret_until_it_releases_it_or_its_time_is_over(place: Path | str) -> None:
    async with opened(place) as stored:
        await begin(stored)
        await stored.write("login", "a", b"x", KEY)
        assert await stored.claim("login", "a", until_ms=2_000, now_ms=1_000)
        assert not await stored.claim("login", "a", until_ms=2_500, now_ms=1_999)
        assert await stored.claim("login", "b", until_ms=2_000, now_ms=1_000)
        await stored.write("login", "a", b"y", KEY)
        assert not await stored.claim("login", "a", until_ms=2_500, now_ms=1_999), "writing releases nothing"
        assert await stored.claim("login", "a", until_ms=3_000, now_ms=2_000)
        await stored.release("login", "a", until_ms=2_000)
        assert not await stored.claim("login", "a", until_ms=3_500, now_ms=2_100), "an old claim ends no newer one"
        await stored.release("login", "a")
        assert await stored.claim("login", "a", until_ms=3_500, now_ms=2_100)
        assert await stored.read("login", "a") == b"y"


async def test_what_was_only_claimed_is_no_secret(place: Path | str) -> None:
    async with opened(place) as stored:
        await begin(stored)
        assert await stored.claim("login", "new", until_ms=2_000, now_ms=1_000)
        assert (await stored.read("login", "new"), await stored.names("login")) == (None, {})
        assert not await stored.delete("login", "new")
        await stored.claim("login", "new", until_ms=2_000, now_ms=1_000)
        await stored.write("login", "new", b"x", KEY)
        await stored.release("login", "new")
        assert await stored.read("login", "new") == b"x"


async def test_of_many_that_claim_at_once_one_may(place: Path | str) -> None:
    async with opened(place) as one, opened(place) as two:
        claims = [stored.claim("login", "a", 2_000, 1_000) for stored in (one, two) for _ in range(5)]
        assert sorted(await asyncio.gather(*claims)) == [False] * 9 + [True]


async def test_storage_has_secrets_if_it_has_a_database(tmp_path: Path) -> None:
    for place, has in ((None, False), (tmp_path / "catalog.db", True)):
        storage = Storage(place)
        storage.open()
        assert (await storage.secrets() is not None) is has
        await storage.close()
