"""A plugin for pytest: collects and runs the next files of a list that several processes work through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

LIST = "list.json"
"""Lists of files, in the order in which they are taken: those of one are run by the same process."""


FAILED = "failed"
"""Names the tests that failed so far."""


def failed_tests(folder: Path) -> list[str]:
    file = folder / FAILED
    return file.read_text().splitlines() if file.exists() else []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turns", type=Path, help="the folder with the list, in which each process says what it took")
    parser.addoption("--until", type=int, help="how many of the list this process may take; all if it is not said")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Turns(config.getoption("--turns"), config.getoption("--until")))


class Turns:
    """The files that this process takes."""

    def __init__(self, folder: Path, until: int | None = None) -> None:
        self._folder = folder
        self._turns: list[list[str]] = json.loads((folder / LIST).read_text())[:until]
        self._untaken = iter(range(len(self._turns)))
        self._modules: dict[str, pytest.Collector] | None = None
        self._collected = 0
        self._is_over = False

    def _take(self) -> list[str]:
        for number in self._untaken:
            with suppress(FileExistsError):
                (self._folder / f"{number}.taken").touch(exist_ok=False)
                return self._turns[number]
        return []

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Find all files, but collect the next ones only. Around this hook, pytest makes warnings errors."""
        if self._modules is None:
            session.perform_collect([file for files in self._turns for file in files], genitems=False)
        session.items = []
        files = self._take()
        self._is_over = not files
        for module in filter(None, map((self._modules or {}).get, files)):
            session.items.extend(session.genitems(module))
        if session.items:
            session.config.hook.pytest_collection_modifyitems(
                session=session, config=session.config, items=session.items
            )
            session.config.hook.pytest_collection_finish(session=session)
        self._collected += len(session.items)
        session.testscollected = self._collected  # without any, pytest fails in the end
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the files that were found first: no other plugin is to choose among them as if they were tests."""
        if self._modules is None:
            self._modules = {str(module.path): module for module in items}
            items.clear()

    def _items(self, session: pytest.Session) -> Iterator[pytest.Item]:
        while not self._is_over:
            yield from session.items
            session.config.hook.pytest_collection(session=session)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all items. What comes next says which fixtures stay, so the next file is collected before the last item
        of a file is run.
        """
        items = self._items(session)
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say_failed(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say_failed(report.nodeid)

    def _say_failed(self, test: str) -> None:
        with (self._folder / FAILED).open("a") as file:
            file.write(f"{test}\n")
