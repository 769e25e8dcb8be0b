"""Encrypts and decrypts one secret with one key. Pure; knows neither where keys are kept nor where secrets are.

A sealed secret says which key opens it, and opens only under its own kind and name: a row that somebody copied to
another name in the database does not. AES-256-GCM, with a new random nonce each time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEADER = len(_VERSION) + _ID_BYTES


class NotSealed(Exception):
    """Not what was sealed under this kind and name: damaged, or copied from another row."""


@dataclass(frozen=True)
class Key:
    """A key that encrypts secrets, and its id, which says nothing about it."""

    material: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        return hashlib.sha256(b"mcp-optimizer key id:" + self.material).digest()[:_ID_BYTES]

    @property
    def text(self) -> str:
        """As it is kept: base64."""
        return base64.b64encode(self.material).decode()


def new_key() -> Key:
    return Key(os.urandom(_KEY_BYTES))


def read_key(text: str) -> Key:
    """A key as `openssl rand -base64 32` prints it, in either alphabet of base64. ValueError if it is none."""
    try:
        material = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        material = b""
    if len(material) != _KEY_BYTES:
        # Without the text: it may be most of a key.
        raise ValueError("it is not 32 bytes in base64")
    return Key(material)


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
    """The id of the key that opens it; empty if this version cannot open it at all."""
    return sealed[len(_VERSION) : _HEADER] if sealed.startswith(_VERSION) else b""


def _bound_to(header: bytes, kind: str, name: str) -> bytes:
    # A kind has no NUL, so the two cannot be divided in another way.
    return b"\0".join((header, kind.encode(), name.encode()))
