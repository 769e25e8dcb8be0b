"""Encrypts secrets before they reach the database, and decrypts them after. Called for stored values and logins; knows
nothing of either.

A sealed secret contains the id of its key, and opens only under its own kind and name, not if its row was copied to
another name. AES-256-GCM, with a new random nonce each time. Everything in a database is sealed with one key, whose id
is stored there. Everything can be opened at any moment of a key change: the new key is stored first, then all rows are
resealed in one transaction, and the old key is dropped when no row needs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mcp_optimizer.db.secrets import SealedRows, SecretRow, StoredSecrets
from mcp_optimizer.errors import CatalogError, SecretUnreadable, listed
from mcp_optimizer.identity.keys import KEY_ID_BYTES, VARIABLE, Key, Keys

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


logger = logging.getLogger(__name__)

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
