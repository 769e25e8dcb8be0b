"""The real command line, observed from inside: unhandled exceptions, the longest stop of its event loop, its tasks.

python -m tests.hostile.gateway_process FILE MEGABYTES ARGUMENT ...: runs `mcp-optimizer ARGUMENT ...` with this much
address space, and writes a report to FILE at each SIGUSR1. Only the creation of event loops is changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from mcp_optimizer.cli import main

_STEP = 0.005


class Watch:
    """Observes one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._longest_stop = 0.0
        self._unhandled: list[str] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = _make_loop()
        loop.set_exception_handler(self._unhandled_by)
        loop.call_soon(self._begin, loop)
        return loop

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_signal_handler(signal.SIGUSR1, self._tell, loop)
        self._tick(loop, time.monotonic())

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = time.monotonic()
        self._longest_stop = max(self._longest_stop, now - due)
        loop.call_later(_STEP, self._tick, loop, now + _STEP)

    def _unhandled_by(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._unhandled.append(f"{context.get('message')} {context.get('exception')!r}"[:2_000])

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        seen = {
            "tasks": len(asyncio.all_tasks(loop)),
            "longest_stop": self._longest_stop,
            "unhandled": self._unhandled[:20],
            "files": len(os.listdir("/proc/self/fd")),
        }
        # Each report covers the time since the last one.
        self._longest_stop = 0.0
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(seen), encoding="utf-8")
        written.rename(self._path)


_make_loop = uvloop.new_event_loop


def watched() -> None:
    path, megabytes, *arguments = sys.argv[1:]
    if int(megabytes):
        most = int(megabytes) * 1_000_000
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    uvloop.new_event_loop = Watch(Path(path)).new_event_loop  # type: ignore[assignment]
    sys.argv = ["mcp-optimizer", *arguments]
    main()


if __name__ == "__main__":
    watched()
