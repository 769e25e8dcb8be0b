"""Encrypts and decrypts one secret with one key. Pure; knows neither where keys are kept nor where secrets are.

A sealed secret says which key opens it, and opens only under its own kind and name: a row that somebody copied to
another name in the database does not. AES-256-GCM, with a new random nonce each time.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mcp_optimizer.identity.keys import KEY_ID_BYTES, Key

_VERSION = b"\x01"
_NONCE_BYTES = 12
_HEADER = len(_VERSION) + KEY_ID_BYTES


class NotSealed(Exception):
    """Not what was sealed under this kind and name: damaged, or copied from another row."""


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
