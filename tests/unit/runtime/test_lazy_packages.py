"""The `__init__` of a package runs when one of its names is asked for, and not before."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from mcp_optimizer.runtime.lazy import load_later

NAMES = ("greedy", "greedy.inner", "greedy.inner.part", "greedy.other", "greedy.costly")


@pytest.fixture
def greedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package that imports all of its modules, and a package in it that does the same."""
    inner = tmp_path / "greedy" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "greedy" / "__init__.py").write_text("from .costly import Costly\nfrom .inner import Part\n")
    (tmp_path / "greedy" / "costly.py").write_text("import time\ntime.sleep(0.05)\nclass Costly: pass\n")
    (tmp_path / "greedy" / "other.py").write_text("from . import inner\nvalue = 7\n")
    (inner / "__init__.py").write_text("from greedy.costly import Costly\nfrom .part import Part\n")
    (inner / "part.py").write_text("class Part: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_later("greedy", "greedy.inner")
    yield sys.modules["greedy"]
    for name in NAMES:
        sys.modules.pop(name, None)


def test_modules_are_imported_without_the_packages_that_they_are_in(greedy: ModuleType) -> None:
    assert import_module("greedy.other").value == 7
    part = import_module("greedy.inner.part").Part
    assert "greedy.costly" not in sys.modules
    assert greedy.inner.part.Part is part
    assert "greedy.costly" not in sys.modules


def test_whoever_asks_for_a_name_gets_it_and_the_same_objects(greedy: ModuleType) -> None:
    part = import_module("greedy.inner.part").Part
    costly = greedy.Costly
    assert sys.modules["greedy.costly"].Costly is costly
    assert greedy.Part is part
    assert greedy.inner.Costly is costly


def test_a_module_is_found_as_an_attribute_of_its_package(greedy: ModuleType) -> None:
    assert greedy.other.value == 7
    assert "greedy.costly" not in sys.modules


def test_a_name_that_is_not_there_is_missing_as_in_any_module(greedy: ModuleType) -> None:
    assert not hasattr(greedy, "__wrapped__")
    assert "greedy.costly" not in sys.modules
    with pytest.raises(AttributeError, match="'greedy' has no attribute 'absent'"):
        _ = greedy.absent
    with pytest.raises(ModuleNotFoundError, match=r"greedy\.absent"):
        import_module("greedy.absent")


def test_threads_that_ask_at_the_same_time_all_get_it(greedy: ModuleType) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(greedy.Costly)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [sys.modules["greedy.costly"].Costly] * 8


def test_a_package_that_is_imported_or_not_installed_is_left_alone() -> None:
    before = sys.modules["json"]
    load_later("json", "no_such_package_anywhere")
    assert sys.modules["json"] is before
    assert "no_such_package_anywhere" not in sys.modules
