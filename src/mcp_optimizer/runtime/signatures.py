"""Signs what clients carry between gateways, with a key that all gateways of one installation share.

The key comes from the database they share. As long as that cannot be read, a key of this process signs: what it signed
is known to this process alone. `OwnedNames` tell which gateway has what they name: a waiting call, a question, an
event. Names of waiting calls are signed together with the caller, so that no other caller can use or invent one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable

from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

ReadKey = Callable[[], Awaitable[bytes | None]]
"""Reads the key of the installation; None: it cannot be read now, or there is none."""

_PATIENCE = 1.0
"""Seconds that anybody waits for an attempt to read the key, counted from its beginning."""
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
        """Without `read` nothing is shared with anybody."""
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
        """Whether there is a shared key that could not be read yet: what others signed cannot be told from forgery."""
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
        """A text that is the same at every gateway of this installation, and unknown elsewhere; empty as long as the
        shared key was not read. Who shares nothing with anybody has one of its own.
        """
        key = self._own if self._read is None else self._shared
        return _mac(key, purpose, "") if key is not None else ""

    async def look(self) -> None:
        """Read the key, unless it is known. All who come meanwhile wait for the same attempt, and none for long."""
        if self._shared is not None or self._read is None:
            return
        if self._reading is None:
            if self._clock() < self._begun + self._pause:
                return
            self._begun = self._clock()
            self._reading = self._tasks.spawn(self._take(self._read))
        left = self._begun + self._patience - self._clock()
        if left > 0:
            # It is not cancelled, because the next one would have to begin it again.
            await asyncio.wait({self._reading}, timeout=left)

    def stop(self) -> None:
        """Read nothing any more. Nobody waits for an attempt that is under way: the database may not answer."""
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
_QUESTION = re.compile(rf"({_OWNER})-q[0-9]{{1,18}}")
_EVENT = re.compile(rf"({_OWNER})-[0-9]{{1,20}}")


def new_owner() -> str:
    """An id for one gateway in one life."""
    return secrets.token_hex(8)


def owner_of_question(name: object) -> str:
    """The gateway that asked; empty for any other id."""
    found = _QUESTION.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found is not None else ""


def owner_of_event(name: str) -> str:
    """The gateway that sent it; empty for any other id."""
    found = _EVENT.fullmatch(name)
    return found[1] if found is not None else ""


class OwnedNames:
    """Makes names of what this gateway has, and reads those of all."""

    def __init__(self, owner: str, signatures: Signatures) -> None:
        self.owner = owner
        self._signatures = signatures
        self._questions = itertools.count(1)

    async def waiting_call(self, principal: str) -> str:
        """A name for a call that waits here for its caller's answers."""
        name = f"{_MARK}.{self.owner}.{secrets.token_urlsafe(24)}"
        signature = await self._signatures.sign(_PURPOSE, f"{principal}\0{name}")
        return f"{name}.{signature}"

    async def owner_of_call(self, state: object, principal: str) -> str:
        """The gateway where a call of this caller waits; empty if no gateway named it. More may follow the name."""
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
    """Whether a name of a waiting call is all that there is; a script's state has more in it."""
    return state.count(".") == _PARTS - 1
