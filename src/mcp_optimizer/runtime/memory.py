"""Memory of a long-running process: collects garbage early and returns free memory to the system.

Does not know what the memory is used for. Without glibc, the allocator is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

_M_ARENA_MAX = -8
_ARENAS = 2

_MANY = 4_000
"""Tools by which a catalog must grow before it pays to exclude their objects from garbage collection."""

_SETTLED = 30.0
"""Seconds after which a gateway has loaded everything that it needs to run."""

_TIDY = 60.0
"""Seconds between two collections of the objects created since the last one."""


def share_pools() -> None:
    """Makes threads share two memory pools: with one pool per thread, each would keep its thread's peak."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Returns freed memory to the system."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def leave_alone() -> None:
    """Excludes all current objects from garbage collection.

    For the rare case that very many objects were created at once. A hundred thousand tools would otherwise stop the
    process for a quarter of a second at each collection. It costs nothing; unused objects are still freed, except for
    reference cycles.
    """
    # The newest objects may be cyclic garbage, which would never be freed after this.
    gc.collect(1)
    gc.freeze()
    _Growth.happened()


class _Growth:
    """Whether very many objects were created since the last regular collection; one per process, like the collector."""

    _is_new = False

    @classmethod
    def happened(cls) -> None:
        cls._is_new = True

    @classmethod
    def since_last_asked(cls) -> bool:
        was_new, cls._is_new = cls._is_new, False
        return was_new


class LongLived:
    """Excludes long-lived objects from garbage collection as their number grows."""

    def __init__(self) -> None:
        self._left_alone = 0

    def grown(self, count: int) -> None:
        """Reports the current number. Only growth counts: objects that are replaced repeatedly would never be freed.

        The step stays the same as the number grows: every full collection examines all objects added since the last
        step, and sixty thousand tools stopped the process for a quarter of a second.
        """
        if count > self._left_alone + _MANY:
            self._left_alone = count
            leave_alone()


@asynccontextmanager
async def kept_tidy(settled: float = _SETTLED, interval: float = _TIDY) -> AsyncIterator[None]:
    """While a gateway serves, collects garbage at regular intervals and returns free memory.

    Python itself runs a full collection only when a quarter of all objects are new. Objects that clients leave behind
    after a while (a session, a long call) would wait for that, and memory would grow for an hour without need.
    """
    tidying = asyncio.create_task(_tidy(settled, interval))
    try:
        yield
    finally:
        tidying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tidying


async def _tidy(settled: float, interval: float) -> None:
    await asyncio.sleep(settled)
    gc.collect()
    # Current objects stay; without them, a collection takes a few milliseconds.
    gc.freeze()
    while True:
        # In a thread: with a gigabyte in use, it takes some hundredths of a second.
        await asyncio.to_thread(give_back)
        await asyncio.sleep(interval)
        # During heavy allocation, a collection would examine all the new objects and stop the process for a tenth of a
        # second.
        if not _Growth.since_last_asked():
            gc.collect()


@cache
def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.gnu_get_libc_version and libc.mallopt and libc.malloc_trim else None
    except (OSError, TypeError, AttributeError):
        return None
