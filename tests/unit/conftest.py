"""Enforces what `make check` relies on: a unit test that starts a process is marked with @pytest.mark.process."""

from __future__ import annotations

import subprocess

import pytest


@pytest.fixture(autouse=True)
def _no_process_without_the_marker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("process"):
        return

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("this test starts a process; mark it with @pytest.mark.process")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
