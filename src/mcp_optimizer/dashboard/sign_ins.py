"""Remembers who signed in on the dashboard: in memory, for twelve hours, a limited number.

Called by `reception` and `signing_in`; knows no request. What a browser keeps is 256 random bits, never a key, and only
their hash is remembered here: neither a guess nor the time that a comparison takes leads to somebody's sign-in.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mcp_optimizer.domain.principal import Principal

LASTS = 12 * 3_600
"""Seconds after which everybody signs in again."""

_MOST = 1_000
_MOST_OF_ONE = 50
"""Sign-ins of one holder, so that nobody ends those of others by signing in again and again."""

_LONGEST = 100


@dataclass(frozen=True)
class SignIn:
    """Somebody who signed in, and with which key; without one, it was the dashboard's token."""

    principal: Principal
    key_id: str
    until: float


class SignIns:
    """The sign-ins that still hold; the oldest make room for new ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._known: OrderedDict[bytes, SignIn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, principal: Principal, key_id: str = "") -> str:
        """What the browser is to keep; a new one each time, whatever the browser sent before."""
        self._make_room(principal)
        kept = secrets.token_urlsafe(32)
        self._known[_hash(kept)] = SignIn(principal, key_id, self._clock() + LASTS)
        return kept

    def find(self, kept: str) -> SignIn | None:
        if not kept or len(kept) > _LONGEST:
            return None
        found = self._known.get(_hash(kept))
        if found is not None and found.until <= self._clock():
            self.end(kept)
            return None
        return found

    def end(self, kept: str) -> None:
        self._known.pop(_hash(kept), None)

    def _make_room(self, principal: Principal) -> None:
        own = [key for key, one in self._known.items() if one.principal.id == principal.id]
        for key in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:
            del self._known[key]
        while len(self._known) >= self._most:
            self._known.popitem(last=False)


def _hash(kept: str) -> bytes:
    return hashlib.sha256(kept.encode("utf-8", "surrogatepass")).digest()
