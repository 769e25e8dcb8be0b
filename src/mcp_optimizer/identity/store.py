"""Where logins are kept: encrypted rows of the database, or memory without one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from mcp_optimizer.identity.login import Login, login_of
from mcp_optimizer.upstream.spec import ServerSpec

KIND = "login"
CLAIM = 30.0
"""Seconds that one process may take for a refresh before another tries."""


class SecretRows(Protocol):
    """Encrypted rows by kind and name."""

    async def read(self, kind: str, name: str) -> bytes | None: ...
    async def write(self, kind: str, name: str, body: bytes) -> None: ...
    async def delete(self, kind: str, name: str) -> bool: ...
    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool: ...
    async def release(self, kind: str, name: str) -> None: ...


class Sealing(Protocol):
    """Encrypts and decrypts what a row holds."""

    def seal(self, kind: str, name: str, body: bytes) -> bytes: ...
    def open(self, kind: str, name: str, body: bytes) -> bytes: ...


class InMemory:
    """SecretRows of one process, which end with it."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], bytes] = {}

    async def read(self, kind: str, name: str) -> bytes | None:
        return self._rows.get((kind, name))

    async def write(self, kind: str, name: str, body: bytes) -> None:
        self._rows[kind, name] = body

    async def delete(self, kind: str, name: str) -> bool:
        return self._rows.pop((kind, name), None) is not None

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        """One process refreshes once at a time anyway."""
        del kind, name, until_ms, now_ms
        return True

    async def release(self, kind: str, name: str) -> None:
        del kind, name

    def seal(self, kind: str, name: str, body: bytes) -> bytes:
        del kind, name
        return body

    def open(self, kind: str, name: str, body: bytes) -> bytes:
        del kind, name
        return body


Place = Callable[[], Awaitable[tuple[SecretRows, Sealing]]]
"""Opens the rows and what seals them, when they are first needed."""


def in_memory() -> Place:
    """A place without a database."""
    rows = InMemory()

    async def place() -> tuple[SecretRows, Sealing]:
        return rows, rows

    return place


class LoginStore:
    """The row of one principal's login to one server. Another address under the same name is another server."""

    def __init__(self, spec: ServerSpec, principal: str, place: Place) -> None:
        self._place = place
        address = hashlib.sha256(spec.url.encode()).hexdigest()[:16]
        self._name = f"{principal}\n{spec.name}\n{address}"

    async def read(self) -> Login | None:
        rows, sealing = await self._place()
        body = await rows.read(KIND, self._name)
        return None if body is None else login_of(sealing.open(KIND, self._name, body))

    async def write(self, login: Login) -> None:
        rows, sealing = await self._place()
        await rows.write(KIND, self._name, sealing.seal(KIND, self._name, login.to_json()))

    async def delete(self) -> bool:
        rows, _ = await self._place()
        return await rows.delete(KIND, self._name)

    async def claim(self) -> bool:
        """The right to refresh: one process at a time, and none forever."""
        rows, _ = await self._place()
        now = time.time_ns() // 1_000_000
        return await rows.claim(KIND, self._name, now + int(CLAIM * 1_000), now)

    async def release(self) -> None:
        rows, _ = await self._place()
        await rows.release(KIND, self._name)
