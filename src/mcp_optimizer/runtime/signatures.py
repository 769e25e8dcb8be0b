"""Signs data that clients carry between gateways, with a key that all gateways of one installation share.

The key comes from the shared database. Until that can be read, each process signs with a key of its own, which only
that process recognises. `OwnedNames` show which gateway holds the thing they name: a waiting call, a question, an
event. Names of waiting calls are signed together with the caller, so that no other caller can use or invent one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable

from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

ReadKey = Callable[[], Awaitable[bytes | None]]
"""Reads the key of the installation; None if there is none or it cannot be read now."""

_PATIENCE = 1.0
"""Seconds that a caller waits for an attempt to read the key, counted from the attempt's start."""
_PAUSE = 1.0
"""Seconds between two attempts."""

_BYTES = 18


class Signatures:
    """Makes and checks signatures, each for one purpose."""

    def __init__(
        self,
        read: ReadKey | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        patience: float = _PATIENCE,
        pause: float = _PAUSE,
    ) -> None:
        """Without `read`, there is no shared key."""
        self._read = read
        self._clock = clock
        self._patience = patience
        self._pause = pause
        self._own = secrets.token_bytes(32)
        self._shared: bytes | None = None
        self._reading: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        self._tasks = BackgroundTasks(logger, "The key that gateways share could not be read")

    @property
    def is_waiting(self) -> bool:
        """Whether a shared key exists that could not be read yet: until then other gateways' signatures look forged."""
        return self._read is not None and self._shared is None

    async def sign(self, purpose: str, text: str) -> str:
        """A signature, in letters, digits, `-` and `_`."""
        await self.look()
        return _mac(self._shared or self._own, purpose, text)

    async def is_ours(self, purpose: str, text: str, signature: str) -> bool:
        """Whether a gateway of this installation signed this text for this purpose."""
        await self.look()
        given = signature.encode("utf-8", "surrogatepass")
        keys = [self._own] if self._shared is None else [self._shared, self._own]
        return any(hmac.compare_digest(given, _mac(key, purpose, text).encode()) for key in keys)

    def shared_mark(self, purpose: str) -> str:
        """A text that is the same at every gateway of this installation and unknown elsewhere; empty until the shared
        key is read. A gateway without a shared key has a mark of its own.
        """
        key = self._own if self._read is None else self._shared
        return _mac(key, purpose, "") if key is not None else ""

    async def look(self) -> None:
        """Reads the key, unless it is known. Concurrent callers share one attempt and wait only for a limited time."""
        if self._shared is not None or self._read is None:
            return
        if self._reading is None:
            if self._clock() < self._begun + self._pause:
                return
            self._begun = self._clock()
            self._reading = self._tasks.spawn(self._take(self._read))
        left = self._begun + self._patience - self._clock()
        if left > 0:
            # Not cancelled, because the next caller would have to start it again.
            await asyncio.wait({self._reading}, timeout=left)

    def stop(self) -> None:
        """Stops reading. A pending attempt is not awaited: the database may not answer."""
        self._tasks.cancel()

    async def _take(self, read: ReadKey) -> None:
        try:
            self._shared = await read()
        finally:
            self._reading = None


def _mac(key: bytes, purpose: str, text: str) -> str:
    said = f"{purpose}\0{text}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(hmac.digest(b"gateways" + key, said, hashlib.sha256)[:_BYTES]).decode()


_PURPOSE = "waiting call"
_MARK = "g1"
_PARTS = 4
_LONGEST = 1_000
_OWNER = "[0-9a-f]{16}"
_QUESTION = regex(rf"({_OWNER})-q[0-9]{{1,18}}")
_EVENT = regex(rf"({_OWNER})-[0-9]{{1,20}}")


def new_owner() -> str:
    """An id for one gateway process, new after each restart."""
    return secrets.token_hex(8)


def owner_of_question(name: object) -> str:
    """The gateway that asked a question; empty for any other id."""
    found = _QUESTION.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found is not None else ""


def owner_of_event(name: str) -> str:
    """The gateway that sent an event; empty for any other id."""
    found = _EVENT.fullmatch(name)
    return found[1] if found is not None else ""


class OwnedNames:
    """Makes names for objects of this gateway, and reads the names of all gateways."""

    def __init__(self, owner: str, signatures: Signatures) -> None:
        self.owner = owner
        self._signatures = signatures
        self._questions = itertools.count(1)

    async def waiting_call(self, principal: str) -> str:
        """A name for a call that waits at this gateway for its caller's answers."""
        name = f"{_MARK}.{self.owner}.{secrets.token_urlsafe(24)}"
        signature = await self._signatures.sign(_PURPOSE, f"{principal}\0{name}")
        return f"{name}.{signature}"

    async def owner_of_call(self, state: object, principal: str) -> str:
        """The gateway where a call of this caller waits; empty if no gateway made this name. More text may follow the
        name.
        """
        if not isinstance(state, str) or len(state) > _LONGEST or not state.startswith(f"{_MARK}."):
            return ""
        parts = state.split(".", _PARTS)[:_PARTS]
        if len(parts) < _PARTS:
            return ""
        *named, signature = parts
        is_ours = await self._signatures.is_ours(_PURPOSE, f"{principal}\0{'.'.join(named)}", signature)
        return named[1] if is_ours else ""

    def question(self) -> str:
        """An id that no other question of any gateway has."""
        return f"{self.owner}-q{next(self._questions)}"


def is_whole_name(state: str) -> bool:
    """Whether a text is exactly the name of a waiting call; a script's state contains more."""
    return state.count(".") == _PARTS - 1
