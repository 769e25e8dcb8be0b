"""Starts Python programs as forks of one process that has imported what most of them import (`start.py`).

A server of tests that is made with the SDK takes more than a second of processor time to load, and a few hundredths to
do what a test asks of it. Used by the fixture `warm_start`; knows none of the programs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PASSED_ON = "TESTS_WARM_SOCKET"
"""A variable for programs that are to use the process of the program that starts them: the end of WARM_PYTHON."""

_SOCKET = Path(os.environ.get(PASSED_ON) or Path(tempfile.gettempdir()) / f"mcp-optimizer-{uuid.uuid4().hex}")
_CAN_FORK = sys.platform.startswith("linux")
WARM_PYTHON = [sys.executable]
"""Python that has imported what mcp-optimizer and the servers of tests import; elsewhere than on Linux, just Python."""
if _CAN_FORK:
    WARM_PYTHON += ["-I", "-S", str(Path(__file__).with_name("command.py")), str(_SOCKET)]


@contextmanager
def warm() -> Iterator[None]:
    """The process that WARM_PYTHON forks, without which it fails; it ends with its stdin."""
    if not _CAN_FORK:
        yield
        return
    command = [sys.executable, str(Path(__file__).with_name("start.py")), *WARM_PYTHON]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it ended before it listened"
        yield


def python() -> list[str]:
    """For programs that benchmarks start, too: warm where that was begun, and otherwise just Python."""
    return WARM_PYTHON if _SOCKET.exists() else [sys.executable]


def warm_server(*arguments: object) -> dict[str, Any]:
    """An entry of a server file: a Python program, such as one of `tests/servers`, with its arguments."""
    return {"command": WARM_PYTHON[0], "args": [*WARM_PYTHON[1:], *map(str, arguments)]}
