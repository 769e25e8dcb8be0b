"""What is made when it is first needed: properties, imports of packages module by module, and models."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from threading import RLock
from typing import Any, TypeVar, overload

# Cheaper imports: packages whose modules are loaded one by one, models that are built when they are used, and imports
# without the garbage collector. Some libraries import everything in their `__init__` to offer short names;
# `load_later` delays that until one of these names is used. `quick_imports` saves processor time where a command
# loads its heavy parts. Knows none of these packages.


def load_later(*names: str) -> None:
    """Delays the `__init__` of these packages. A package that is already imported or not installed is left alone."""
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None and spec.loader is not None:
            sys.modules[name] = package = module_from_spec(spec)
            vars(package)["__getattr__"] = _Later(spec)
            parent, _, own = name.rpartition(".")
            if parent:
                vars(sys.modules[parent])[own] = package


class _Later:
    """A package's `__getattr__`, called for names that the package does not have yet."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec
        self._has_begun = False
        # Other threads wait for the names; the thread that runs the `__init__` may look up further ones.
        self._running = RLock()

    def __call__(self, name: str) -> Any:
        package = sys.modules[self._spec.name]
        # Python itself looks up such names in packages, where they may not exist.
        if not name.startswith("__") or name == "__all__":
            if find_spec(f"{self._spec.name}.{name}") is not None:
                return import_module(f"{self._spec.name}.{name}")
            with self._running:
                if not self._has_begun:
                    self._has_begun = True
                    assert self._spec.loader is not None
                    self._spec.loader.exec_module(package)
        try:
            return vars(package)[name]
        except KeyError:
            raise AttributeError(f"module {self._spec.name!r} has no attribute {name!r}") from None


@contextmanager
def quick_imports() -> Iterator[None]:
    """Stops garbage collection meanwhile and exempts all objects from it afterwards: modules live as long as the
    process.

    Pydantic's models that are declared meanwhile, the protocol's several hundred above all, build their validators on
    first use. Most of them are not used.
    """
    from pydantic import BaseModel

    was_enabled = gc.isenabled()
    gc.disable()
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        BaseModel.model_config.pop("defer_build", None)
        gc.freeze()
        if was_enabled:
            gc.enable()


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
