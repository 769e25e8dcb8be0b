"""Encrypts secrets before they reach the database, decrypts them after, and keeps the keys that do so. Called for
stored values and logins; knows nothing of either.

A sealed secret contains the id of its key, and opens only under its own kind and name, not if its row was copied to
another name. AES-256-GCM, with a new random nonce each time. Everything in a database is sealed with one key, whose id
is stored there. Everything can be opened at any moment of a key change: the new key is stored first, then all rows are
resealed in one transaction, and the old key is dropped when no row needs it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from platformdirs import user_data_path

from mcp_optimizer.config.settings import APP_NAME, PREFIX
from mcp_optimizer.db.secrets import SealedRows, SecretRow, StoredSecrets
from mcp_optimizer.errors import CatalogError, ConfigurationError, SecretUnreadable, listed
from mcp_optimizer.runtime.local_files import make_folder, mend, replace_file

logger = logging.getLogger(__name__)

# Reads and writes the keys of secrets: in the environment, the OS keyring, or a private file next to the database.
# The keys of all these places open secrets, so a key can move from one place to another. A new key goes to the
# keyring if one works, otherwise to the file. Keys in the environment belong to the user and are never changed. Each
# database has its own keys, so changing the keys of one cannot lock another.

VARIABLE = f"{PREFIX}SECRET_KEY"
_MAKE_ONE = "`openssl rand -base64 32` makes one"
_LONGEST_FILE = 65_536
_KEY_BYTES = 32
KEY_ID_BYTES = 8


@dataclass(frozen=True)
class Key:
    """A key that encrypts secrets, and its id, which does not reveal it."""

    material: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        return hashlib.sha256(b"mcp-optimizer key id:" + self.material).digest()[:KEY_ID_BYTES]

    @property
    def text(self) -> str:
        """The key in base64, as it is stored."""
        return base64.b64encode(self.material).decode()


def new_key() -> Key:
    return Key(os.urandom(_KEY_BYTES))


def read_key(text: str) -> Key:
    """Read a key as `openssl rand -base64 32` prints it, in either base64 alphabet. Raises ValueError if it is none."""
    try:
        material = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        material = b""
    if len(material) != _KEY_BYTES:
        # The message omits the text, which may be most of a key.
        raise ValueError("it is not 32 bytes in base64")
    return Key(material)


class Keys:
    """The keys of one database. Every method may wait for the keyring, so call them in a thread."""

    def __init__(self, environment: Mapping[str, str], file: Path, name: str) -> None:
        self._given = environment.get(VARIABLE, "")
        self._file = file
        self._keyring = _Keyring(name)

    def read(self) -> tuple[Key, ...]:
        """All keys, without duplicates."""
        found = [*self._from_environment(), *self._keyring.read(), *self._from_file()]
        return tuple({key.id: key for key in found}.values())

    def first(self) -> Key:
        """The key for the first secret: an existing one, or a new one."""
        found = self.read()
        return found[0] if found else self._add([])

    def next(self, current: bytes | None) -> Key:
        """The key that replaces the current one; both are stored until `keep`."""
        given = self._from_environment()
        if not given:
            return self._add(self.read())
        if given[0].id == current:
            raise ConfigurationError(
                f"The key is in {VARIABLE}, so you must change it: put a new key and a comma in front ({_MAKE_ONE}), "
                "rotate, then remove the old key."
            )
        return given[0]

    def keep(self, ids: Collection[bytes]) -> None:
        """Forget all other keys, except those in the environment."""
        for found, write in ((self._keyring.read(), self._keyring.write), (self._from_file(), self._write_file)):
            kept = [key for key in found if key.id in ids]
            if len(kept) < len(found):
                write(kept)

    @property
    def places(self) -> str:
        """The places searched for keys, for messages."""
        parts = [VARIABLE, *(["the OS keyring"] if self._keyring.is_installed else []), str(self._file)]
        return f"{', '.join(parts[:-1])} or {parts[-1]}"

    def _from_environment(self) -> list[Key]:
        try:
            return [read_key(part) for part in self._given.split(",") if part.strip()]
        except ValueError as error:
            raise ConfigurationError(
                f"{VARIABLE} must be one key, or several separated by commas: {error} ({_MAKE_ONE})."
            ) from None

    def _add(self, found: Sequence[Key]) -> Key:
        """Store a new key together with those that were found, so that a failing place loses none."""
        made = new_key()
        if not self._keyring.write([made, *found]):
            self._write_file([made, *found])
        return made

    def _from_file(self) -> list[Key]:
        try:
            mend(self._file)
            with self._file.open(encoding="ascii") as file:
                lines = file.read(_LONGEST_FILE).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigurationError(f"Cannot read the key file {self._file}: {error.strerror}.") from error
        except ValueError:
            raise self._damaged() from None
        return self._parsed([line for line in lines if line.strip()])

    def _parsed(self, lines: Sequence[str]) -> list[Key]:
        try:
            keys = [read_key(line) for line in lines]
        except ValueError:
            raise self._damaged() from None
        if not keys:
            raise self._damaged()
        return keys

    def _damaged(self) -> ConfigurationError:
        return ConfigurationError(
            f"The key file {self._file} is damaged: it must have one key a line, each 32 bytes in base64. Put a copy "
            "of it back. If there is none, the secrets are lost: move the file away, then delete the secrets and set "
            "them again."
        )

    def _write_file(self, keys: Sequence[Key]) -> bool:
        try:
            if not keys:
                self._file.unlink(missing_ok=True)
                return True
            make_folder(self._file.parent)
            replace_file(self._file, "".join(f"{key.text}\n" for key in keys))
        except OSError as error:
            raise ConfigurationError(
                f"Cannot write the key file {self._file}: {error.strerror}. Give the key in {VARIABLE} ({_MAKE_ONE}), "
                "or choose another database with --database."
            ) from error
        return True


class _Keyring:
    """The OS keyring, if the extra `keyring` is installed. One that fails, or stores nothing, counts as missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_installed(self) -> bool:
        return find_spec("keyring") is not None

    def read(self) -> list[Key]:
        if not self.is_installed:
            return []
        # Backends raise errors of their own libraries: no desktop session, locked, refused by the user.
        with suppress(Exception):
            kept = import_module("keyring").get_password(APP_NAME, self._name) or ""
            return [read_key(part) for part in kept.split(",") if part]
        logger.debug("the OS keyring cannot be read")
        return []

    def write(self, keys: Sequence[Key]) -> bool:
        """Store the keys; returns whether the keyring has them now."""
        if not self.is_installed:
            return False
        with suppress(Exception):
            keyring = import_module("keyring")
            if keys:
                keyring.set_password(APP_NAME, self._name, ",".join(key.text for key in keys))
            else:
                keyring.delete_password(APP_NAME, self._name)
            # Read them back, because one backend accepts everything and stores nothing.
            return self.read() == list(keys)
        logger.debug("the OS keyring cannot be written")
        return False


def keys_of(place: Path | str, environment: Mapping[str, str]) -> Keys:
    """The keys of a database file, or of a PostgreSQL database, whose key file is in the data folder.

    The key file's name does not begin like the database's, so that copying `catalog.db*` does not copy the key.
    """
    if isinstance(place, Path):
        path = place.expanduser().resolve()
        return Keys(environment, path.parent / f"secrets-{path.name}.key", str(path))
    parts = urlsplit(place)
    hosts = [parts.netloc.rpartition("@")[2], *parse_qs(parts.query).get("host", [])]
    name = f"postgresql://{','.join(filter(None, hosts))}{parts.path}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return Keys(environment, user_data_path(APP_NAME) / f"secrets-{digest}.key", name)


_VERSION = b"\x01"
_NONCE_BYTES = 12
_HEADER = len(_VERSION) + KEY_ID_BYTES


class NotSealed(Exception):
    """The data was not sealed under this kind and name: it is damaged, or copied from another row."""


def seal(key: Key, kind: str, name: str, body: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    header = _VERSION + key.id
    return header + nonce + AESGCM(key.material).encrypt(nonce, body, _bound_to(header, kind, name))


def unseal(key: Key, kind: str, name: str, sealed: bytes) -> bytes:
    nonce, encrypted = sealed[_HEADER : _HEADER + _NONCE_BYTES], sealed[_HEADER + _NONCE_BYTES :]
    try:
        return AESGCM(key.material).decrypt(nonce, encrypted, _bound_to(sealed[:_HEADER], kind, name))
    except (InvalidTag, ValueError):
        raise NotSealed from None


def key_id_of(sealed: bytes) -> bytes:
    """The id of the key that opens a sealed secret; empty if this version cannot open it at all."""
    return sealed[len(_VERSION) : _HEADER] if sealed.startswith(_VERSION) else b""


def _bound_to(header: bytes, kind: str, name: str) -> bytes:
    # A kind contains no NUL, so kind and name cannot be split differently.
    return b"\0".join((header, kind.encode(), name.encode()))


_ATTEMPTS = 5
"""Maximum key changes tolerated while one secret is read or written."""

Stored = Callable[[], Awaitable[StoredSecrets | None]]


class Vault:
    """The decrypted secrets of one database. `stored` finds the database, which may be opened later."""

    def __init__(self, stored: Stored, keys: Keys) -> None:
        self._stored = stored
        self._keys = keys
        self._known: dict[bytes, Key] = {}

    async def stored(self) -> StoredSecrets:
        """The sealed rows, for listing names, deleting and claiming."""
        found = await self._stored()
        if found is None:
            raise CatalogError("Secrets are kept in the catalog database, and it is not open.")
        return found

    async def read(self, kind: str, name: str) -> bytes | None:
        """A secret; None if there is none. Raises SecretUnreadable without the key."""
        stored = await self.stored()
        sealed = await stored.read(kind, name)
        for _ in range(_ATTEMPTS):
            if sealed is None:
                return None
            if await self._key(key_id_of(sealed)) is not None:
                break
            # Since the row was read, the key may have changed and the old one been dropped.
            before, sealed = sealed, await stored.read(kind, name)
            if sealed == before:
                break
        return None if sealed is None else self._opened(SecretRow(kind, name, sealed))

    async def write(self, kind: str, name: str, body: bytes) -> None:
        stored = await self.stored()
        for _ in range(_ATTEMPTS):
            key_id = await stored.key_id()
            key = None if key_id is None else await self._key(key_id)
            if key is None:
                await stored.change_key(partial(self._begin, (kind, name)))
            elif await stored.write(kind, name, seal(key, kind, name, body), key.id):
                return
        raise CatalogError("The key of the secrets changes again and again. Nothing was written; try again.")

    async def rotate(self) -> int:
        """Reseal everything with a new key and drop the old one; returns the number of secrets."""
        stored = await self.stored()
        count = 0

        def reseal(held: SealedRows) -> SealedRows:
            nonlocal count
            count = len(held.rows)
            return self._resealed(held)

        await stored.change_key(reseal)
        if await stored.settle():
            await stored.change_key(self._drop_unused)
        else:
            logger.warning("The database is busy, so the old key of the secrets is kept. Rotate again to drop it.")
        return count

    async def _key(self, key_id: bytes) -> Key | None:
        """A key by its id. Another process may have made it, so the keys are read again before it counts as missing."""
        if key_id not in self._known:
            await asyncio.to_thread(self._learn)
        return self._known.get(key_id)

    def _learn(self) -> None:
        self._known = {key.id: key for key in self._keys.read()}

    def _begin(self, place: tuple[str, str], held: SealedRows) -> SealedRows:
        """Choose the key for a database that has none, or whose lost key no row but this one needs."""
        self._learn()
        if held.key_id in self._known:
            return SealedRows(held.key_id, ())
        lost = [row for row in held.rows if row[:2] != place and key_id_of(row.body) not in self._known]
        if lost:
            raise self._unreadable(lost)
        key = self._keys.first()
        self._known = {**self._known, key.id: key}
        return SealedRows(key.id, ())

    def _resealed(self, held: SealedRows) -> SealedRows:
        self._learn()
        lost = [row for row in held.rows if not self._opens(row)]
        if lost:
            raise self._unreadable(lost)
        key = self._keys.next(held.key_id)
        self._known = {**self._known, key.id: key}
        rows = (row._replace(body=seal(key, row.kind, row.name, self._opened(row))) for row in held.rows)
        return SealedRows(key.id, tuple(rows))

    def _drop_unused(self, held: SealedRows) -> SealedRows:
        used = {key_id_of(row.body) for row in held.rows} | ({held.key_id} if held.key_id else set())
        self._keys.keep(used)
        return SealedRows(None, ())

    def _opens(self, row: SecretRow) -> bool:
        try:
            self._opened(row)
        except SecretUnreadable:
            return False
        return True

    def _opened(self, row: SecretRow) -> bytes:
        key = self._known.get(key_id_of(row.body))
        if key is None:
            raise self._unreadable([row])
        try:
            return unseal(key, row.kind, row.name, row.body)
        except NotSealed:
            raise SecretUnreadable(
                f"The {_label(row)} is damaged, or was copied from another row of the database. Delete it and set it "
                "again."
            ) from None

    def _unreadable(self, rows: Sequence[SecretRow]) -> SecretUnreadable:
        ids = sorted({key_id_of(row.body).hex() or "of a newer version" for row in rows})
        return SecretUnreadable(
            f"No key opens the {listed([_label(row) for row in rows])}. The key with the id {listed(ids)} is not in "
            f"{self._keys.places}. Put it back there: several keys in {VARIABLE} are separated by commas. If it is "
            "lost, delete these and set them again; nothing was deleted."
        )


def _label(row: SecretRow) -> str:
    return f"login {row.name!r}" if row.kind == "login" else f"secret {row.name!r}"
