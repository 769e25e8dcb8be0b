"""Signs what clients carry between gateways, with a key that all gateways of one installation share.

The key comes from the database they share. As long as that cannot be read, a key of this process signs: what it signed
is known to this process alone. Knows nothing of what is signed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable

ReadKey = Callable[[], Awaitable[bytes | None]]
"""Reads the key of the installation; None: it cannot be read now, or there is none."""

_PATIENCE = 1.0
_PAUSE = 5.0
"""Seconds for one attempt to read the key, and between two."""

_BYTES = 18


async def _none() -> bytes | None:
    return None


class Signatures:
    """Makes and checks signatures, each for one purpose."""

    def __init__(self, read: ReadKey = _none, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._own = secrets.token_bytes(32)
        self._shared: bytes | None = None
        self._next_attempt = float("-inf")

    async def sign(self, purpose: str, text: str) -> str:
        """A signature, in letters, digits, `-` and `_`."""
        await self._look()
        return _mac(self._shared or self._own, purpose, text)

    async def is_ours(self, purpose: str, text: str, signature: str) -> bool:
        """Whether a gateway of this installation signed this text for this purpose."""
        await self._look()
        given = signature.encode("utf-8", "surrogatepass")
        keys = [self._own] if self._shared is None else [self._shared, self._own]
        return any(hmac.compare_digest(given, _mac(key, purpose, text).encode()) for key in keys)

    async def _look(self) -> None:
        if self._shared is not None or self._clock() < self._next_attempt:
            return
        self._next_attempt = self._clock() + _PAUSE
        try:
            async with asyncio.timeout(_PATIENCE):
                self._shared = await self._read()
        except TimeoutError:
            return


def _mac(key: bytes, purpose: str, text: str) -> str:
    said = f"{purpose}\0{text}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(hmac.digest(b"gateways" + key, said, hashlib.sha256)[:_BYTES]).decode()
