"""Secrets open with their key only, survive every change of it, and are nowhere in a copied database."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from mcp_optimizer.db.storage import Storage
from mcp_optimizer.errors import CatalogError, ConfigurationError, SecretUnreadable
from mcp_optimizer.identity.vault import VARIABLE, Key, Keys, Vault, keys_of, new_key, read_key
from tests.conftest import ROOT
from tests.postgres import ask
from tests.unit.identity.vaults import opened

SECRET = b"planted-secret-4f3c2b1a9d8e"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "catalog.db"


def key_file(path: Path) -> Path:
    return path.parent / f"secrets-{path.name}.key"


async def test_a_secret_is_read_by_whoever_has_the_key(place: Path | str) -> None:
    async with opened(place) as vault:
        assert await vault.read("value", "a") is None
        await vault.write("value", "a", SECRET)
        await vault.write("login", "a", b"")
        assert await vault.read("value", "a") == SECRET
    async with opened(place) as vault:
        assert (await vault.read("value", "a"), await vault.read("login", "a")) == (SECRET, b"")


async def test_a_copied_database_contains_neither_a_secret_nor_its_base64(path: Path) -> None:
    async with opened(path) as vault:
        await vault.write("value", "a-name", SECRET)
        await vault.write("value", "deleted", SECRET)
        await (await vault.stored()).delete("value", "deleted")
        await vault.rotate()
        await vault.write("value", "a-name", SECRET)
        files = {file.name: file.read_bytes() for file in path.parent.glob("catalog.db*")}
    assert {"catalog.db", "catalog.db-wal", "catalog.db-shm"} <= files.keys()
    written = b"".join(files.values())
    assert b"a-name" in written
    material = read_key(key_file(path).read_text()).material
    for planted in (
        SECRET,
        base64.b64encode(SECRET)[:-4],
        base64.urlsafe_b64encode(SECRET)[:-4],
        SECRET.hex().encode(),
    ):
        assert planted not in written
    for planted in (material, base64.b64encode(material), material.hex().encode()):
        assert planted not in written


async def test_a_dump_of_postgresql_does_not_contain_it_either(postgres_url: str) -> None:
    async with opened(postgres_url) as vault:
        await vault.write("value", "a-name", SECRET)
    dumped = str(ask(postgres_url, "SELECT kind, name, encode(body, 'escape'), encode(body, 'hex') FROM secret"))
    assert "a-name" in dumped
    assert SECRET.decode() not in dumped
    assert SECRET.hex() not in dumped


async def test_a_lost_key_is_named_with_what_it_locks_and_nothing_is_deleted(place: Path | str) -> None:
    first, second = new_key(), new_key()
    async with opened(place, {VARIABLE: first.text}) as vault:
        await vault.write("value", "api", SECRET)
        await vault.write("login", "github", SECRET)
    async with opened(place, {VARIABLE: second.text}) as vault:
        for use in (vault.read("value", "api"), vault.write("value", "new", b"x"), vault.rotate()):
            with pytest.raises(SecretUnreadable, match=f"'(api|github)'.*{first.id.hex()}.*Put it back") as caught:
                await use
            assert VARIABLE in str(caught.value)
            assert first.text not in str(caught.value)
            assert second.text not in str(caught.value)
        assert await (await vault.stored()).names("value") != {}
    async with opened(place, {VARIABLE: f"{second.text},{first.text}"}) as vault:
        assert await vault.read("value", "api") == await vault.read("login", "github") == SECRET


async def test_after_a_lost_key_what_it_locked_can_be_deleted_and_set_again(path: Path) -> None:
    async with opened(path) as vault:
        await vault.write("value", "a", SECRET)
        await vault.write("value", "b", SECRET)
    key_file(path).unlink()
    async with opened(path) as vault:
        with pytest.raises(SecretUnreadable, match="'b'"):
            await vault.write("value", "a", b"new")
        assert not key_file(path).exists(), "a new key would hide that the old one is needed"
        await (await vault.stored()).delete("value", "b")
        await vault.write("value", "a", b"new")
        assert await vault.read("value", "a") == b"new"


async def test_a_row_copied_to_another_name_does_not_open(place: Path | str) -> None:
    async with opened(place) as vault:
        await vault.write("value", "a", SECRET)
        stored = await vault.stored()
        sealed, key_id = await stored.read("value", "a"), await stored.key_id()
        assert sealed is not None
        assert key_id is not None
        await stored.write("value", "b", sealed, key_id)
        await stored.write("value", "c", sealed[:-1], key_id)
        await stored.write("value", "d", b"\x02" + sealed, key_id)
        for name in ("b", "c", "d"):
            with pytest.raises(SecretUnreadable, match=f"secret '{name}'"):
                await vault.read("value", name)


async def test_after_a_rotation_everything_opens_with_the_new_key_only(place: Path | str) -> None:
    async with opened(place) as vault, opened(place) as running:
        await vault.write("value", "a", SECRET)
        await running.write("login", "b", SECRET)
        [old] = keys_of(place, {}).read()
        assert await vault.rotate() == 2
        [new] = keys_of(place, {}).read()
        assert new != old
        assert await running.read("value", "a") == await running.read("login", "b") == SECRET
        await running.write("login", "b", b"newer")
        assert await vault.read("login", "b") == b"newer"


async def test_keys_in_the_environment_are_rotated_by_putting_a_new_one_in_front(place: Path | str) -> None:
    old, new = new_key(), new_key()
    async with opened(place, {VARIABLE: old.text}) as vault:
        await vault.write("value", "a", SECRET)
        with pytest.raises(ConfigurationError, match="in front"):
            await vault.rotate()
    async with opened(place, {VARIABLE: f"{new.text},{old.text}"}) as vault:
        assert await vault.rotate() == 1
    async with opened(place, {VARIABLE: new.text}) as vault, opened(place, {VARIABLE: old.text}) as behind:
        assert await vault.read("value", "a") == SECRET
        with pytest.raises(SecretUnreadable, match=new.id.hex()):
            await behind.write("value", "b", SECRET)


class Interrupted(Keys):
    """Keys of a rotation that ends just after it made the new key, or just before it drops the old one."""

    def __init__(self, path: Path, *, at_once: bool) -> None:
        super().__init__({}, key_file(path), str(path))
        self._at_once = at_once

    def next(self, current: bytes | None) -> Key:
        made = super().next(current)
        if self._at_once:
            raise CatalogError("interrupted")
        return made

    def keep(self, ids: Collection[bytes]) -> None:
        raise CatalogError("interrupted")


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_rotation_that_ends_in_the_middle_leaves_everything_readable_and_writable(
    path: Path, at_once: bool
) -> None:
    async with opened(path) as running, opened(path, keys=Interrupted(path, at_once=at_once)) as vault:
        await running.write("value", "a", SECRET)
        with pytest.raises(CatalogError, match="interrupted"):
            await vault.rotate()
        assert len(keys_of(path, {}).read()) == 2
        await running.write("value", "b", SECRET)
    async with opened(path) as vault:
        assert await vault.read("value", "a") == await vault.read("value", "b") == SECRET
        assert await vault.rotate() == 2
        assert await vault.read("value", "a") == SECRET
    assert len(keys_of(path, {}).read()) == 1


@pytest.mark.process
async def test_processes_killed_while_they_rotate_lose_nothing(path: Path) -> None:
    names = [f"s{number}" for number in range(20)]
    async with opened(path) as vault:
        for name in names:
            await vault.write("value", name, SECRET + name.encode())
        for number in range(4):
            await asyncio.gather(*(kill_while_rotating(path, number) for _ in range(2)))
            for name in names:
                assert await vault.read("value", name) == SECRET + name.encode()
        await vault.rotate()
    assert len(keys_of(path, {}).read()) == 1


async def kill_while_rotating(path: Path, rotations: int) -> None:
    command = [sys.executable, "-m", "tests.unit.identity.rotating", str(path)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        for _ in range(1 + rotations):
            assert await asyncio.wait_for(process.stdout.readline(), 20) == b"rotated\n"
    finally:
        # Whatever it is doing at this moment.
        process.kill()
        await process.communicate()


@pytest.mark.slow
async def test_many_that_write_the_first_secret_at_once_agree_on_one_key(place: Path | str) -> None:
    async with opened(place) as one, opened(place) as two:
        vaults = [one, two] * 5
        await asyncio.gather(*(vault.write("value", f"s{n}", SECRET) for n, vault in enumerate(vaults)))
        assert len(keys_of(place, {}).read()) == 1
        for number in range(10):
            assert await one.read("value", f"s{number}") == await two.read("value", f"s{number}") == SECRET


@pytest.mark.slow
async def test_a_secret_is_read_while_its_key_changes(path: Path) -> None:
    async with opened(path) as one, opened(path) as two:
        await one.write("value", "a", SECRET)
        rotating = asyncio.gather(*(one.rotate() for _ in range(10)))
        while not rotating.done():
            assert await two.read("value", "a") == SECRET
        await rotating


@pytest.mark.slow
async def test_rotations_and_writes_at_once_lose_nothing(place: Path | str) -> None:
    async with opened(place) as one, opened(place) as two:
        await one.write("value", "a", SECRET)
        writes = [vault.write("value", f"s{n}", SECRET) for n in range(5) for vault in (one, two)]
        await asyncio.gather(one.rotate(), *writes, two.rotate())
        for name in ("a", *(f"s{n}" for n in range(5))):
            assert await one.read("value", name) == await two.read("value", name) == SECRET


async def test_without_a_database_there_are_no_secrets(path: Path) -> None:
    storage = Storage(None)
    with pytest.raises(CatalogError, match="kept in the catalog database"):
        await Vault(storage.secrets, keys_of(path, {})).read("value", "a")
