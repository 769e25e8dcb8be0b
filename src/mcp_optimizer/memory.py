"""What the C library's allocator does with memory: few pools, and what is free given back to the system.

Knows nothing of what the memory is used for. Where there is no glibc, there is nothing to do.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_M_ARENA_MAX = -8
_ARENAS = 2


def share_pools() -> None:
    """Let threads share two pools of memory: one for each of them keeps the most that each ever needed."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return freed memory to the system."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.gnu_get_libc_version and libc.mallopt and libc.malloc_trim else None
    except (OSError, TypeError, AttributeError):
        return None
