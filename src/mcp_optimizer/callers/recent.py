"""Remembers what was found out about tokens: for a short time, a limited number, and only by their hash."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_MOST = 4_096

Finding = TypeVar("Finding")


class Recent(Generic[Finding]):
    """The latest findings."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[bytes, tuple[float, Finding]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> Finding | None:
        found = self._found.get(key)
        if found is None:
            return None
        until, finding = found
        if until <= self._clock():
            del self._found[key]
            return None
        return finding

    def put(self, key: bytes, finding: Finding, seconds: float) -> None:
        if seconds <= 0:
            return
        self._found.pop(key, None)
        self._found[key] = (self._clock() + seconds, finding)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def forget(self, key: bytes) -> None:
        self._found.pop(key, None)


def hash_of(*parts: str) -> bytes:
    """One hash of several texts. Their lengths are part of it, so that no two lists of texts have the same."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.digest()
