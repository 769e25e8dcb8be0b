"""Keys in the database: one living key of a name, and nothing of it but a hash."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text as sql

from mcp_optimizer.access.callers.keys import Wanted, new_key, opened_keys, rotate_key
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.domain.credentials import ApiKey
from mcp_optimizer.errors import ConfigurationError


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_key_comes_back_as_it_was_written(place: Path | str) -> None:
    wanted = Wanted("ci", ["b", "a"], Risk.DESTRUCTIVE, Role.MANAGE, "minimal", 7, "never", "ada@example.com")
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


def made(name: str, holder: str = "", expires: str = "90d") -> ApiKey:
    return new_key(Wanted(name, expires=expires, holder=holder), datetime.now(UTC))[0]


async def test_a_key_and_the_one_that_replaces_it_are_both_valid_until_the_overlap_ends(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        old, other = made("ci"), made("other")
        assert [await keys.add(key, 10) for key in (old, other)] == ["", ""]
        before = await keys.mark()
        new, _ = await rotate_key(keys, "ci", timedelta(hours=1))
        assert await keys.mark() != before
        living = {key.id: key for key in await keys.living(now_ms())}
        assert living.keys() == {old.id, new.id, other.id}
        assert living[new.id] == new
        assert living[old.id].principal == new.principal
        ends = living[old.id].expires_at_ms
        assert ends is not None
        assert 0 < ends - now_ms() <= 3_600_000
        assert living[other.id] == other
        after = ends + 1
        assert {key.id for key in await keys.living(after)} == {new.id, other.id}
        # Its use is still answered with what has become of it, for a week.
        assert {key.id for key in await keys.known(after)} == {old.id, new.id, other.id}
        assert {key.id for key in await keys.known(after + 8 * 86_400_000)} == {new.id, other.id}
        assert await keys.add(made("ci"), 10) == "name"


async def test_a_key_is_replaced_again_and_again_and_stays_one_caller(place: Path | str) -> None:
    async with opened_keys(place) as keys, opened_keys(place) as others:
        old = made("ci", expires="never")
        assert await keys.add(old, 10) == ""
        found = await asyncio.gather(*(rotate_key(one, "ci", timedelta(hours=1)) for one in [keys, others] * 3))
        living = await keys.living(now_ms())
        assert {key.id for key in living} == {old.id, *(key.id for key, _ in found)}
        assert {key.principal.id for key in living} == {f"key:{old.id}"}
        assert sum(key.replaced_at_ms is None for key in living) == 1
        assert await keys.revoke("ci", now_ms())
        assert await keys.living(now_ms()) == await keys.known(now_ms()) == []


async def test_an_overlap_never_makes_a_key_last_longer_and_an_expired_key_can_be_replaced(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        old = made("ci", expires="12h")
        assert await keys.add(old, 10) == ""
        new, _ = await rotate_key(keys, "ci", timedelta(days=30))
        assert {key.id: key.expires_at_ms for key in await keys.all()}[old.id] == old.expires_at_ms
        assert new.expires_at_ms is not None
        again, problem = await keys.replace(
            "ci", lambda key: made_like(key, new.expires_at_ms or 0), 0, new.expires_at_ms + 1, 10
        )
        assert problem == ""
        assert again is not None
        assert again.principal.id == old.principal.id


def made_like(key: ApiKey, now: int) -> ApiKey:
    other = made("ci", expires="never")
    return ApiKey(other.id, key.name, other.digest, now, stands_for=key.stands_for or key.id)


@pytest.mark.parametrize(
    ("name", "message"), [("nobody", "There is no key 'nobody'"), ("gone", "was revoked"), ("full", "10,000 keys")]
)
async def test_what_cannot_be_replaced_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_optimizer.access.callers.keys.MOST_KEYS", 1)
    async with opened_keys(tmp_path / "catalog.db") as keys:
        assert await keys.add(made("gone"), 10) == ""
        assert await keys.revoke("gone", now_ms())
        assert await keys.add(made("full"), 10) == ""
        before = await keys.all()
        with pytest.raises(ConfigurationError, match=message):
            await rotate_key(keys, name, timedelta())
        assert await keys.all() == before


async def test_all_keys_of_a_person_are_revoked_at_once_and_those_of_no_other(place: Path | str) -> None:
    async with opened_keys(place) as keys:
        for key in (made("laptop", "ada"), made("phone", "ada"), made("bob", "bob"), made("ada")):
            assert await keys.add(key, 10) == ""
        newest = await keys.living_of("ada", now_ms())
        assert newest is not None
        assert newest.holder == "ada"
        assert await keys.revoke_holder("ada", now_ms()) == ["laptop", "phone"]
        assert await keys.revoke_holder("ada", now_ms()) == await keys.revoke_holder("", now_ms()) == []
        assert [key.name for key in await keys.living(now_ms())] == ["ada", "bob"]
        assert await keys.living_of("ada", now_ms()) is None


async def test_keys_from_before_holders_stay_as_they_were(place: Path | str) -> None:
    key, revoked = made("ci"), made("gone")
    async with opened_keys(place) as keys:
        assert [await keys.add(one, 10) for one in (key, revoked)] == ["", ""]
        await keys.revoke("gone", now_ms())
        before = await keys.all()
    database = await open_database(place)
    async with database.engine.begin() as connection:
        for column in ("holder", "stands_for", "replaced_at_ms"):
            await connection.execute(sql(f"ALTER TABLE api_key DROP COLUMN {column}"))
        await connection.execute(sql("UPDATE alembic_version SET version_num = '0019'"))
    await database.close()
    async with opened_keys(place) as keys:
        assert await keys.all() == before
        [found] = await keys.living(now_ms())
        assert (found.principal.id, found.principal.name) == (f"key:{key.id}", "key:ci")
        new, _ = await rotate_key(keys, "ci", timedelta(hours=1))
        assert new.principal == key.principal
