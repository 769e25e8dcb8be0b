"""A property that is computed on first use and then cached. Pure except for that."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar, overload

_T = TypeVar("_T")


class lazy(cached_property[_T]):  # noqa: N801
    """`cached_property` without its lock.

    Before Python 3.12 all instances share that lock: while a thread reads a large result, the event loop could not read
    a small one. Without it, two threads may compute the same value twice, which costs only time.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> lazy[_T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> lazy[_T] | _T:
        if instance is None:
            return self
        assert self.attrname is not None
        made = instance.__dict__[self.attrname] = self.func(instance)
        return made
