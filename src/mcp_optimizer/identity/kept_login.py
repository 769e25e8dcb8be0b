"""This process's copy of a stored login, which other processes may replace or delete. Used by `server_login`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.login import Login
from mcp_optimizer.identity.store import LoginStore
from mcp_optimizer.runtime.tasks import BackgroundTasks


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


logger = logging.getLogger(__name__)

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
