"""Stores logins: in encrypted rows of the database, or in memory without one. `KeptLogin` is this process's copy of
one, which other processes may replace or delete. Used by `server_login` and `logins`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.login import Login, login_of
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
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


# This process's copy of a stored login, which other processes may replace or delete.


class Listeners:
    """Callbacks, called in the order in which they were added."""

    def __init__(self) -> None:
        self._told: list[Callable[[], None]] = []

    @contextmanager
    def telling(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call this listener while the context is open."""
        self._told.append(listener)
        try:
            yield
        finally:
            self._told.remove(listener)

    def tell(self) -> None:
        for listener in list(self._told):
            listener()


_LOOK_AGAIN = 3.0
"""Seconds after which the store is read again, because another process may have logged out."""

_EARLIER = 4
_LAST_WORDS = 5.0
"""Seconds for reads and writes in progress when the gateway stops."""


class KeptLogin:
    """The login of one principal to one server."""

    def __init__(self, store: LoginStore) -> None:
        self.store = store
        self.login: Login | None = None
        self.has_changed = asyncio.Event()
        self.made = Listeners()
        self.tasks = BackgroundTasks(logger, "A login could not be kept", (OptimizerError,))
        self._is_loaded = False
        self._looked_at = 0.0
        self._earlier: deque[str] = deque(maxlen=_EARLIER)

    @property
    def secrets(self) -> Mapping[str, str]:
        """The values that must never be shown, including earlier tokens, which a late answer may repeat."""
        earlier = {f"earlier token {number}": token for number, token in enumerate(self._earlier, 1)}
        return {**earlier, **(self.login.secrets if self.login is not None else {})}

    async def current(self) -> Login | None:
        """The login as this process knows it; checks the store in the background from time to time."""
        if not self._is_loaded:
            self.login = await self.read()
            self._is_loaded = True
        elif time.monotonic() - self._looked_at > _LOOK_AGAIN:
            # In the background, so that the call need not wait.
            self._looked_at = time.monotonic()
            self.tasks.spawn(self.another())
        return self.login

    async def read(self) -> Login | None:
        """The login in the store."""
        self._looked_at = time.monotonic()
        # Shielded: stopping a server during the read would otherwise cost a database connection.
        return await asyncio.shield(self.tasks.spawn(self.store.read_if_possible(self.login)))

    async def another(self) -> Login | None:
        """The login that another process stored since our last read, if it can replace ours; takes it over."""
        stored = await self.read()
        if stored is None:
            self.lose()
        elif stored.can_replace(self.login):
            self.take(stored)
            return stored
        return None

    async def replace(self, old: Login, new: Login) -> bool:
        """Store the successor of a login, unless another process has logged in or out meanwhile, which then counts."""
        stored = await self.read()
        if stored is None:
            self.lose()
            return False
        if stored.tokens != old.tokens:
            self.take(stored)
            return False
        self.take(new)
        await self.store.write_if_possible(new)
        return True

    async def keep(self, login: Login) -> None:
        """Store the login that a person made."""
        await self.store.write(login)
        self.take(login)
        self.made.tell()

    async def forget(self) -> bool:
        """Delete the login, because the person logged out."""
        found = await self.store.delete()
        self.lose()
        return found

    def take(self, login: Login) -> None:
        self._remember()
        self.login = login
        self._is_loaded = True
        self.has_changed.set()

    def note_error(self, error: str) -> None:
        """Note the last error, in this process only."""
        if self.login is not None:
            self.login = replace(self.login, error=error)

    def lose(self) -> None:
        self._remember()
        self.login = None

    async def close(self) -> None:
        # Interrupting a refresh could lose the only token that replaces the old one.
        try:
            await asyncio.wait_for(self.tasks.settled(), _LAST_WORDS)
        except TimeoutError:
            await self.tasks.close()

    def _remember(self) -> None:
        if self.login is not None and self.login.tokens is not None and self.login.tokens.access not in self._earlier:
            self._earlier.append(self.login.tokens.access)
