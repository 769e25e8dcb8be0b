"""Whoever wants to know that something happened, for as long as they want to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Listeners:
    """Those who are told, in the order in which they came."""

    def __init__(self) -> None:
        self._told: list[Callable[[], None]] = []

    @contextmanager
    def telling(self, listener: Callable[[], None]) -> Iterator[None]:
        """Tell this one while the context is open."""
        self._told.append(listener)
        try:
            yield
        finally:
            self._told.remove(listener)

    def tell(self) -> None:
        for listener in list(self._told):
            listener()
