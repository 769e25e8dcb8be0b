"""Keys are found in the environment, the OS keyring or a private file, and lost from none of them."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.identity.vault import VARIABLE, Keys, keys_of, new_key

UseKeyring = Callable[[str], None]

KEPT = """
kept = {}
get_password = lambda service, name: kept.get((service, name))
def set_password(service, name, text): kept[service, name] = text
def delete_password(service, name): del kept[service, name]
"""
FAILING = """
def get_password(*_): raise RuntimeError("no backend")
set_password = delete_password = get_password
"""
FORGETFUL = """
def get_password(*_): return None
set_password = delete_password = get_password
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secrets-catalog.db.key"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def use_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UseKeyring]:
    def use(source: str) -> None:
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules" / "keyring.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path / "modules")
        monkeypatch.delitem(sys.modules, "keyring", raising=False)

    yield use
    sys.modules.pop("keyring", None)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_key_is_made_once_in_a_private_file_that_is_not_named_like_the_database(
    place: Path, file: Path
) -> None:
    key = keys_of(place, {}).first()
    assert keys_of(place, {}).first() == key
    assert keys_of(place, {}).read() == (key,)
    assert mode(file) == 0o600
    assert list(place.parent.glob("catalog.db*")) == []


def test_a_new_key_stands_beside_the_old_one_until_only_one_is_kept(place: Path, file: Path) -> None:
    keys = keys_of(place, {})
    old = keys.first()
    new = keys.next(old.id)
    assert keys.read() == (new, old)
    keys.keep({new.id})
    assert keys.read() == (new,)
    assert old.text not in file.read_text()


def test_two_databases_in_one_folder_have_keys_of_their_own(place: Path) -> None:
    one, two = keys_of(place, {}), keys_of(place.with_name("other.db"), {})
    assert one.first() != two.first()


def test_a_database_in_postgresql_has_a_key_file_in_the_data_folder_whatever_its_password(tmp_path: Path) -> None:
    made = keys_of("postgresql://me:first-password@db:5432/tools", {}).first()
    assert keys_of("postgresql://you:other@db:5432/tools?sslmode=require", {}).read() == (made,)
    assert keys_of("postgresql://me@db:5432/other", {}).read() == ()
    [file] = (tmp_path / "xdg_data_home" / "mcp-optimizer").glob("secrets-*.key")
    assert mode(file) == 0o600
    assert mode(file.parent) == 0o700


def test_a_key_file_that_others_can_read_is_closed_to_them(place: Path, file: Path) -> None:
    key = keys_of(place, {}).first()
    file.chmod(0o644)
    assert keys_of(place, {}).read() == (key,)
    assert mode(file) == 0o600


@pytest.mark.parametrize("damage", ["", "\n\n", "half", "\0" * 100, "é", "x" * 1_000_000])
def test_a_damaged_key_file_is_reported_and_never_replaced(place: Path, file: Path, damage: str) -> None:
    keys = keys_of(place, {})
    text = keys.first().text
    for content in (damage, f"{text}\n{damage}" if damage.strip() else damage, text[:-4]):
        file.write_text(content, encoding="utf-8")
        for use in (keys.read, keys.first, lambda: keys.next(None), lambda: keys.keep(())):
            with pytest.raises(ConfigurationError, match=r"key file .*secrets-catalog\.db\.key is damaged") as caught:
                use()
            assert text[:10] not in str(caught.value)
        assert file.read_text(encoding="utf-8") == content


def test_a_key_file_that_cannot_be_read_or_written_says_what_else_to_do(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="Cannot read the key file"):
        Keys({}, tmp_path / "folder", "x").read()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"Cannot (read|write) the key file"):
        Keys({}, tmp_path / "file" / "x.key", "x").first()


def test_keys_in_the_environment_come_first_and_are_the_users_to_change(place: Path) -> None:
    in_file, old, new = keys_of(place, {}).first(), new_key(), new_key()
    keys = keys_of(place, {VARIABLE: f"{new.text}, {old.text}"})
    assert keys.read() == (new, old, in_file)
    assert keys.first() == new
    assert keys.next(old.id) == new
    with pytest.raises(ConfigurationError, match=rf"{VARIABLE}.*new key and a comma in front.*openssl"):
        keys.next(new.id)


def test_a_bad_key_in_the_environment_is_reported_without_it(place: Path) -> None:
    with pytest.raises(ConfigurationError, match=VARIABLE) as caught:
        keys_of(place, {VARIABLE: f"{new_key().text},hunter2hunter2"}).read()
    assert "hunter2" not in str(caught.value)


def test_a_keyring_that_works_keeps_the_key_and_there_is_no_file(
    place: Path, file: Path, use_keyring: UseKeyring
) -> None:
    use_keyring(KEPT)
    keys = keys_of(place, {})
    old = keys.first()
    new = keys.next(old.id)
    assert keys_of(place, {}).read() == (new, old)
    keys.keep({new.id})
    assert keys_of(place, {}).read() == (new,)
    assert keys_of(place.with_name("other.db"), {}).read() == ()
    assert not file.exists()
    assert "the OS keyring" in keys.places


def test_a_key_moves_from_the_file_to_a_keyring_when_it_is_replaced(
    place: Path, file: Path, use_keyring: UseKeyring
) -> None:
    old = keys_of(place, {}).first()
    use_keyring(KEPT)
    keys = keys_of(place, {})
    assert keys.first() == old
    new = keys.next(old.id)
    assert keys.read() == (new, old)
    keys.keep({new.id})
    assert keys.read() == (new,)
    assert not file.exists()


@pytest.mark.parametrize("source", [FAILING, FORGETFUL, "raise ImportError('broken')"])
def test_a_keyring_that_fails_or_keeps_nothing_is_replaced_by_the_file(
    place: Path, file: Path, use_keyring: UseKeyring, source: str
) -> None:
    use_keyring(source)
    key = keys_of(place, {}).first()
    assert file.read_text() == f"{key.text}\n"
    assert keys_of(place, {}).read() == (key,)
