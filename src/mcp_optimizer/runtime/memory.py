"""Memory of a process that runs for long: garbage is found in time, and what is free is given back to the system.

Knows nothing of what the memory is used for. Where there is no glibc, its allocator is left alone.
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

_SETTLED = 30.0
"""Seconds after which what a gateway needs to run has been loaded."""

_TIDY = 60.0
"""Seconds between two looks at everything that came since."""


def share_pools() -> None:
    """Let threads share two pools of memory: one for each of them keeps the most that each ever needed."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return freed memory to the system."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def leave_alone() -> None:
    """What is there now is here to stay: looks for garbage need not go through it.

    For the rare moment when very much has come at once. A hundred thousand tools would otherwise stop everything for a
    quarter of a second at each look. Costs nothing; what goes out of use is still freed, unless it refers to itself.
    """
    # What came last may still be garbage that refers to itself, and would never be found.
    gc.collect(1)
    gc.freeze()


@asynccontextmanager
async def kept_tidy(settled: float = _SETTLED, interval: float = _TIDY) -> AsyncIterator[None]:
    """While a gateway serves: look for garbage at steady intervals, and give back what is free.

    Python itself looks through everything only when a quarter has come anew. What clients leave behind that lived
    for a while (a session, a long call) would wait for that, and memory would grow for an hour without need.
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
    # What is there now stays: without it, a look at the rest takes a few milliseconds.
    gc.freeze()
    while True:
        give_back()
        await asyncio.sleep(interval)
        gc.collect()


@cache
def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.gnu_get_libc_version and libc.mallopt and libc.malloc_trim else None
    except (OSError, TypeError, AttributeError):
        return None
