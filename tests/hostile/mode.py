"""Which input a hostile server currently uses. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

GOOD = "good"
MUTATED = "mutated"
"""Instead of one named input: messages changed at random, from a seed."""


class Mode(Protocol):
    """Set by the test that runs the server; `done` tells the test that the input was sent."""

    def current(self) -> str: ...

    def done(self, what: str) -> None: ...


class FileMode:
    """A mode in a file, for a server in its own process. A second file lists the inputs that it has sent."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._path = path
        self._name = name
        self.descriptor = os.open(self.log_of(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @staticmethod
    def log_of(path: Path) -> Path:
        return path.with_suffix(".log")

    @staticmethod
    def show(path: Path, name: str) -> None:
        """Switch to this input. The file is replaced in one step, so that the server never reads half a name."""
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
    """A mode in memory, for a server in this process."""

    def __init__(self, name: str = GOOD) -> None:
        self.name = name
        self.deeds: list[str] = []

    def current(self) -> str:
        return self.name

    def done(self, what: str) -> None:
        self.deeds.append(what)
