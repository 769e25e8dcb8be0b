"""Which input a hostile server shows now. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

GOOD = "good"
MUTATED = "mutated"
"""Not one input but all of them: messages changed at random, from a seed."""


class Mode(Protocol):
    """Set by the test that runs the server; `done` tells the test that the input was sent."""

    def current(self) -> str: ...

    def done(self, what: str) -> None: ...


class FileMode:
    """In a file, for a server in its own process; completed inputs are written to a second file, line by line."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._path = path
        self._name = name
        self.descriptor = os.open(self.log_of(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @staticmethod
    def log_of(path: Path) -> Path:
        return path.with_suffix(".log")

    @staticmethod
    def show(path: Path, name: str) -> None:
        """From now on this one, in one step: half a name would be none, and none means good."""
        half = path.with_suffix(".half")
        half.write_text(name, encoding="utf-8")
        half.replace(path)

    def current(self) -> str:
        try:
            written = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return GOOD
        return GOOD if written == GOOD else self._name or written

    def done(self, what: str) -> None:
        os.write(self.descriptor, f"{what}\n".encode())


class HeldMode:
    """In this process."""

    def __init__(self, name: str = GOOD) -> None:
        self.name = name
        self.deeds: list[str] = []

    def current(self) -> str:
        return self.name

    def done(self, what: str) -> None:
        self.deeds.append(what)
