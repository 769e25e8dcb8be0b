"""Keys in the database: one living key of a name, and nothing of it but a hash."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

from mcp_optimizer.access.callers.keys import Wanted, new_key
from mcp_optimizer.access.callers.known_keys import opened_keys
from mcp_optimizer.domain.principal import Risk, Role


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_key_comes_back_as_it_was_written(place: Path | str) -> None:
    wanted = Wanted("ci", ["b", "a"], Risk.DESTRUCTIVE, Role.MANAGE, "minimal", 7, "never")
    key, text = new_key(wanted, datetime.now(UTC))
    async with opened_keys(place) as keys:
        assert await keys.add(key, 10) == ""
        assert await keys.all() == await keys.living(now_ms()) == [key]
    if isinstance(place, Path):
        secret = text.split("_", 2)[2].encode()
        assert not [path for path in place.parent.iterdir() if path.is_file() and secret in path.read_bytes()]


async def test_of_several_that_make_a_key_of_one_name_one_succeeds(place: Path | str) -> None:
    async with opened_keys(place) as keys, opened_keys(place) as others:
        made = [new_key(Wanted("ci"), datetime.now(UTC))[0] for _ in range(6)]
        stores = [keys, others] * 3
        said = await asyncio.gather(*(store.add(key, 10) for store, key in zip(stores, made, strict=True)))
        assert sorted(said) == ["", *["name"] * 5]


async def test_a_name_is_free_again_when_its_key_is_revoked(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        first, second = (new_key(Wanted("ci"), datetime.now(UTC))[0] for _ in range(2))
        before = await keys.mark()
        assert await keys.add(first, 10) == ""
        added = await keys.mark()
        assert await keys.revoke("ci", now_ms())
        revoked = await keys.mark()
        assert len({before, added, revoked}) == 3
        assert not await keys.revoke("ci", now_ms())
        assert await keys.add(second, 10) == ""
        assert [key.id for key in await keys.living(now_ms())] == [second.id]
        assert len(await keys.all()) == 2


async def test_there_is_a_limit_on_living_keys(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        made = [new_key(Wanted(f"key {number}"), datetime.now(UTC))[0] for number in range(3)]
        assert [await keys.add(key, 2) for key in made] == ["", "", "many"]


async def test_those_that_live_come_first_and_one_is_revoked_by_its_id(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        made = [new_key(Wanted(f"key {number}"), datetime.now(UTC))[0] for number in range(4)]
        for key in made:
            assert await keys.add(key, 10) == ""
        assert await keys.revoke_id(made[3].id, now_ms()) == "key 3"
        assert await keys.revoke_id(made[3].id, now_ms()) is None
        assert await keys.revoke_id("no such", now_ms()) is None
        found = [key.name for key in await keys.latest(10, now_ms())]
        assert sorted(found[:3]) == ["key 0", "key 1", "key 2"]
        assert found[3:] == ["key 3"]
        assert len(await keys.latest(2, now_ms())) == 2
        assert await keys.living_named("key 1", now_ms()) == made[1]
        assert await keys.living_named("key 3", now_ms()) is None
