"""Stores logins: in encrypted rows of the database, or in memory without one. Used by `kept_login` and `logins`."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.login import Login, login_of
from mcp_optimizer.runtime.lazy import lazy

if TYPE_CHECKING:
    # Not at run time: it is loaded only with the database.
    from mcp_optimizer.identity.vault import Vault

logger = logging.getLogger(__name__)

KIND = "login"
CLAIM = 30.0
"""Seconds that a process may take for a refresh before another process tries."""


class SecretRows(Protocol):
    """Stored secrets, by kind and name."""

    async def read(self, kind: str, name: str) -> bytes | None: ...
    async def write(self, kind: str, name: str, body: bytes) -> None: ...
    async def delete(self, kind: str, name: str) -> bool: ...
    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool: ...
    async def release(self, kind: str, name: str, until_ms: int) -> None: ...
    async def names(self, kind: str, beginning: str = "") -> Collection[str]: ...
    async def drop_old(self, kind: str, before_ms: int) -> None: ...


class InMemory:
    """Secrets in the memory of one process."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], bytes] = {}

    async def read(self, kind: str, name: str) -> bytes | None:
        return self.rows.get((kind, name))

    async def write(self, kind: str, name: str, body: bytes) -> None:
        self.rows[kind, name] = body

    async def delete(self, kind: str, name: str) -> bool:
        return self.rows.pop((kind, name), None) is not None

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        """Always granted: a single process never refreshes twice at a time."""
        del kind, name, until_ms, now_ms
        return True

    async def release(self, kind: str, name: str, until_ms: int) -> None:
        del kind, name, until_ms

    async def names(self, kind: str, beginning: str = "") -> Collection[str]:
        return [name for known, name in self.rows if known == kind and name.startswith(beginning)]

    async def drop_old(self, kind: str, before_ms: int) -> None:
        """Nothing: only processes that share a database keep what ends by itself."""
        del kind, before_ms


class InVault:
    """Encrypted secrets in the database."""

    def __init__(self, vault: Callable[[], Vault], breaker: Breaker | None = None) -> None:
        """`vault` is called when a secret is first needed."""
        self._make = vault
        self._breaker = breaker or Breaker()

    @lazy
    def _vault(self) -> Vault:
        return self._make()

    async def read(self, kind: str, name: str) -> bytes | None:
        return await self._breaker.within(lambda: self._vault.read(kind, name))

    async def write(self, kind: str, name: str, body: bytes) -> None:
        await self._breaker.begun(lambda: self._vault.write(kind, name, body))

    async def delete(self, kind: str, name: str) -> bool:
        return await (await self._vault.stored()).delete(kind, name)

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        async def claim() -> bool:
            return await (await self._vault.stored()).claim(kind, name, until_ms, now_ms)

        return await self._breaker.within(claim)

    async def release(self, kind: str, name: str, until_ms: int) -> None:
        async def release() -> None:
            await (await self._vault.stored()).release(kind, name, until_ms)

        await self._breaker.begun(release)

    async def names(self, kind: str, beginning: str = "") -> Collection[str]:
        async def names() -> Collection[str]:
            return await (await self._vault.stored()).names(kind, beginning)

        return await self._breaker.within(names)

    async def drop_old(self, kind: str, before_ms: int) -> None:
        async def drop() -> None:
            await (await self._vault.stored()).drop_old(kind, before_ms)

        await self._breaker.begun(drop)


def beginning_of(account: str) -> str:
    """How the names of an account's rows begin. No account contains a line break."""
    return f"{account}\n"


def ending_of(spec: ServerSpec) -> str:
    """How the names of the rows of a server end. The same server name with another address is another server."""
    return f"{spec.name}\n{hashlib.sha256(spec.url.encode()).hexdigest()[:16]}"


class LoginStore:
    """The row of one account's login to one server."""

    def __init__(self, spec: ServerSpec, account: str, rows: SecretRows) -> None:
        self._rows = rows
        self._server = spec.name
        self._claimed_until = 0
        self._name = f"{beginning_of(account)}{ending_of(spec)}"

    async def read(self) -> Login | None:
        body = await self._rows.read(KIND, self._name)
        return None if body is None else login_of(body)

    async def read_if_possible(self, otherwise: Login | None) -> Login | None:
        """The stored login; if it cannot be read, logs the error and returns `otherwise`."""
        try:
            return await self.read()
        except OptimizerError as failure:
            logger.error("The login to server %s cannot be read: %s", self._server, failure)
            return otherwise

    async def write(self, login: Login) -> None:
        await self._rows.write(KIND, self._name, login.to_json())

    async def write_if_possible(self, login: Login) -> None:
        """Write the login. A failure is logged; then only this process knows the login."""
        try:
            await self.write(login)
        except OptimizerError as failure:
            logger.error("The login to server %s cannot be stored: %s", self._server, failure)

    async def delete(self) -> bool:
        return await self._rows.delete(KIND, self._name)

    async def claim(self) -> bool:
        """Claim the right to refresh, which one process has at a time; the claim expires."""
        now = time.time_ns() // 1_000_000
        self._claimed_until = now + int(CLAIM * 1_000)
        return await self._rows.claim(KIND, self._name, self._claimed_until, now)

    async def release(self) -> None:
        """End the claim, which expires by itself if this fails."""
        with contextlib.suppress(OptimizerError):
            await self._rows.release(KIND, self._name, self._claimed_until)
