"""Named secrets: what may be stored, what is shown of them, and what changes with a new key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_optimizer.errors import CatalogError, ConfigurationError
from mcp_optimizer.identity.secrets import LONGEST_NAME, MOST_BYTES, opened_secrets
from mcp_optimizer.identity.vault import keys_of
from tests.unit.identity.vaults import opened


async def test_a_secret_is_set_replaced_listed_and_deleted(place: Path | str) -> None:
    async with opened_secrets(place, {}) as secrets:
        await secrets.set("b", "1")
        await secrets.set("a", "2")
        await secrets.set("a", "3")
        assert list(await secrets.names()) == ["a", "b"]
        assert await secrets.delete("a")
        assert not await secrets.delete("a")
        assert list(await secrets.names()) == ["b"]


@pytest.mark.parametrize("name", ["a", "input:my key", "GitHub/prod@2", "ключ", "x" * LONGEST_NAME, "${a", "'; --"])
async def test_any_name_that_can_be_written_in_a_server_file_may_be_used(tmp_path: Path, name: str) -> None:
    async with opened_secrets(tmp_path / "catalog.db", {}) as secrets:
        await secrets.set(name, "value")
        assert list(await secrets.names()) == [name]


@pytest.mark.parametrize(
    "name",
    ["", " a", "a\n", "a}b", "a\0b", "a\x1b[2J", "a\u202eb", "\udcff", "x" * (LONGEST_NAME + 1), "x" * 1_000_000],
)
async def test_other_names_are_refused_with_a_short_reason(tmp_path: Path, name: str) -> None:
    async with opened_secrets(tmp_path / "catalog.db", {}) as secrets:
        for use in (secrets.set(name, "value"), secrets.delete(name)):
            with pytest.raises(ConfigurationError, match=r"[Nn]ame of a secret") as caught:
                await use
            assert len(str(caught.value)) < 300
            assert str(caught.value).isprintable()
        assert await secrets.names() == {}


async def test_a_value_has_a_limit_and_is_text(tmp_path: Path) -> None:
    async with opened_secrets(tmp_path / "catalog.db", {}) as secrets:
        await secrets.set("most", "é" * (MOST_BYTES // 2))
        for value in ("", "x" * (MOST_BYTES + 1), "x" * 10_000_000, "half \udcff"):
            with pytest.raises(ConfigurationError, match="value of a secret") as caught:
                await secrets.set("other", value)
            assert len(str(caught.value)) < 200
        assert list(await secrets.names()) == ["most"]


async def test_a_new_key_is_used_for_logins_too(tmp_path: Path) -> None:
    place = tmp_path / "catalog.db"
    async with opened_secrets(place, {}) as secrets, opened(place) as vault:
        await secrets.set("a", "1")
        await vault.write("login", "github", b"tokens")
        [before] = keys_of(place, {}).read()
        assert await secrets.rotate() == 2
        [after] = keys_of(place, {}).read()
        assert before != after
        assert await vault.read("login", "github") == b"tokens"


async def test_a_key_can_be_changed_before_there_is_a_secret(tmp_path: Path) -> None:
    async with opened_secrets(tmp_path / "catalog.db", {}) as secrets:
        assert await secrets.rotate() == 0
        await secrets.set("a", "1")
        assert await secrets.rotate() == 1


async def test_writers_of_one_name_at_once_leave_one_of_their_values(place: Path | str) -> None:
    async with opened_secrets(place, {}) as one, opened_secrets(place, {}) as two, opened(place) as vault:
        await asyncio.gather(*(secrets.set("a", f"value {n}") for n in range(5) for secrets in (one, two)))
        assert await vault.read("value", "a") in {f"value {n}".encode() for n in range(5)}


async def test_a_database_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CatalogError, match="folder"):
        async with opened_secrets(tmp_path / "file" / "catalog.db", {}):
            pass
