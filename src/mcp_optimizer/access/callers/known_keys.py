"""Verifies API keys against the database, which it reads at most a few times a second, however many keys are sent.

All living keys are in memory, and those that were replaced lately. Checking for changes is one small query, made ahead
of time while keys are in use, so a valid key rarely waits for it. Changes by another process take effect within two
seconds; if they cannot be read, every key is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mcp_optimizer.access.callers.keys import id_of, is_secret_of
from mcp_optimizer.access.callers.rejections import CannotVerify, Rejected
from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.credentials import ApiKey
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.credentials import StoredKeys

logger = logging.getLogger(__name__)

_FRESH = 1.0
"""Age in seconds from which the keys are checked for changes in the background."""

_OLDEST = 2.0
"""Age in seconds from which the keys are not used without a new check."""

_UNKNOWN = 0.2
"""Seconds between two checks that unknown keys cause."""

_USE_NOTED = 60.0
"""Seconds between two writes that the same key was used."""

_LAST_LOOK = 1.0
"""Seconds for a check in progress to finish when the gateway stops."""

_AFTER_FAILURE = 0.5
_WARNED = 60.0
"""Seconds between two attempts, and between two warnings, while the database does not answer."""

_NO_GOOD = "The key is unknown, expired or revoked."
_REPLACED = "This key has ended: another one has replaced it. Use the new key."
_NO_ANSWER = "Keys cannot be verified: the database does not answer. Try again shortly."


class KeyStore(Protocol):
    """The stored keys. `mark` returns a value that changes with them."""

    async def mark(self) -> object: ...
    async def known(self, now_ms: int) -> Sequence[ApiKey]: ...
    async def write_used(self, used: Mapping[str, int]) -> None: ...


class _Known(NamedTuple):
    keys: Mapping[str, ApiKey]
    mark: object
    at: float


class KnownKeys:
    """The living keys of a database."""

    def __init__(
        self,
        stored: Callable[[], Awaitable[KeyStore | None]],
        clock: Callable[[], float] = time.monotonic,
        breaker: Breaker | None = None,
    ) -> None:
        self._stored = stored
        self._breaker = breaker or Breaker()
        self._clock = clock
        self._known = _Known({}, None, float("-inf"))
        self._looking: asyncio.Task[None] | None = None
        self._looks = BackgroundTasks(logger, "Cannot read the keys", expected=(CannotVerify,))
        self._writes = BackgroundTasks(logger, "Cannot write when keys were used", expected=(CatalogError,))
        self._noted: dict[str, float] = {}
        self._failed_at = self._warned_at = self._changed_at = float("-inf")

    def changed(self, _names: Sequence[str] = ()) -> None:
        """A key was made or revoked: use nothing that was read before."""
        self._changed_at = self._clock()
        self._known = self._known._replace(at=float("-inf"))

    async def principal(self, text: str) -> Principal:
        """The key's holder; raises Rejected if the key is not valid, CannotVerify if the database does not answer."""
        key_id = id_of(text)
        if key_id is None:
            raise Rejected("This is not a key of this gateway.")
        key = await self._found(key_id)
        if key is None or not is_secret_of(text, key):
            raise Rejected(_NO_GOOD)
        if not key.is_living(_now_ms()):
            raise Rejected(_NO_GOOD if key.replaced_at_ms is None else _REPLACED)
        self._note_use(key.id)
        return key.principal

    async def holder(self, key_id: str) -> Principal:
        """The holder of a key that was verified before, by its id, if it still lives; raises as `principal` does."""
        key = await self._found(key_id)
        if key is None or not key.is_living(_now_ms()):
            raise Rejected(_NO_GOOD)
        self._note_use(key.id)
        return key.principal

    async def close(self) -> None:
        """Finish reads and writes in progress."""
        with contextlib.suppress(TimeoutError):
            # A connection whose opening is cancelled would be lost.
            await asyncio.wait_for(self._looks.settled(), _LAST_LOOK)
        await self._looks.close()
        await self._writes.settled()

    async def _found(self, key_id: str) -> ApiKey | None:
        """A key of this id that was living when it was last read, or was replaced lately."""
        age = self._clock() - self._known.at
        if age > (_OLDEST if key_id in self._known.keys else _UNKNOWN):
            await self._look()
            if self._known.at < self._changed_at:
                # That check had begun before the change.
                await self._look()
        elif age > _FRESH:
            self._begin_look()
        return self._known.keys.get(key_id)

    async def _look(self) -> None:
        # Shielded: other callers may wait for the same check.
        await asyncio.shield(self._begin_look())

    def _begin_look(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = self._looks.spawn(self._read())
        return self._looking

    async def _read(self) -> None:
        begun = self._clock()
        if begun - self._failed_at < _AFTER_FAILURE:
            raise CannotVerify(_NO_ANSWER)
        try:
            keys, mark = await self._breaker.within(self._read_stored)
        except CatalogError as error:
            self._failed(begun, error)
            raise CannotVerify(_NO_ANSWER) from error
        self._noted = {key_id: at for key_id, at in self._noted.items() if key_id in keys}
        self._known = _Known(keys, mark, begun if begun >= self._changed_at else float("-inf"))

    async def _read_stored(self) -> tuple[Mapping[str, ApiKey], object]:
        stored = await self._stored()
        if stored is None:
            raise CatalogError("the database is not open")
        known = self._known
        # The mark first: a change between the two reads is then read again with the next check.
        mark = await stored.mark()
        if mark == known.mark:
            return known.keys, mark
        return {key.id: key for key in await stored.known(_now_ms())}, mark

    def _failed(self, at: float, error: CatalogError) -> None:
        self._failed_at = at
        if at - self._warned_at > _WARNED:
            self._warned_at = at
            logger.warning("Keys cannot be verified, so every key is refused: %s", error)

    def _note_use(self, key_id: str) -> None:
        now = self._clock()
        if now - self._noted.get(key_id, float("-inf")) < _USE_NOTED:
            return
        self._noted[key_id] = now
        self._writes.spawn(self._write_used(key_id, _now_ms()))

    async def _write_used(self, key_id: str, at_ms: int) -> None:
        if (stored := await self._stored()) is not None:
            await stored.write_used({key_id: at_ms})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def opened_keys(place: Path | str) -> AsyncIterator[StoredKeys]:
    """The keys of a database, which is opened only for this context. Raises CatalogError if it cannot be opened."""
    from mcp_optimizer.db.credentials import StoredKeys
    from mcp_optimizer.db.database import open_database

    database = await open_database(place)
    try:
        yield StoredKeys(database)
    finally:
        await database.close()
