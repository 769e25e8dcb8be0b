"""Enforces what `make check` relies on: a unit test that starts a process is marked with @pytest.mark.process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

may_start = True
start = subprocess.Popen.__init__


@pytest.fixture(autouse=True, scope="session")
def _starts_are_watched() -> Iterator[None]:
    def started(process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
        if not may_start:
            pytest.fail("this test starts a process; mark it with @pytest.mark.process")
        start(process, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", started)
        yield


@pytest.fixture(autouse=True)
def _no_process_without_the_marker(request: pytest.FixtureRequest) -> Iterator[None]:
    global may_start
    may_start = request.node.get_closest_marker("process") is not None
    yield
    may_start = True
