"""Stops a serving process, reloads its files, and opens its command socket.

Signals request the first two; a timer ends a process that hangs. Used by `serve` over stdio, over HTTP and by its
workers, so the gateway itself is only imported where it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.app.control.listener import ControlListener
    from mcp_optimizer.app.optimizer import Optimizer

logger = logging.getLogger(__name__)

STOP_SECONDS = 1.7
"""Seconds for everything to end after the calls in progress."""
GRACE_SECONDS = 1.9
"""Seconds after `shutdown_timeout` at which the process ends, even if something hangs."""


class Signals:
    """SIGINT and SIGTERM: the first requests a shutdown, the second forces it."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._reloads = BackgroundTasks(logger, "The files could not be read again")
        self.is_interactive = False
        """Whether a person at a terminal waits for the process to end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        if self._asked.is_set():
            end_now(128 + number)
        self.is_interactive = number == signal.SIGINT
        self._asked.set()

    def reload_with(self, optimizer: Optimizer) -> None:
        """On SIGHUP, read the files again. If our terminal was closed, the same signal means stop."""
        number = getattr(signal, "SIGHUP", None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:
            # The parent ignores SIGHUP, as nohup does, to keep us alive.
            return
        had_terminal = has_terminal()

        def take() -> None:
            if had_terminal and not has_terminal():
                self._take(signal.SIGTERM)
            else:
                self._reloads.spawn(optimizer.reload())

        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, take)

    def stop_with(self, link: socket.socket) -> None:
        """For a worker: stop as on SIGTERM when the process that started us is gone."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(link)
            self._take(signal.SIGTERM)

        loop.add_reader(link, gone)

    async def until_asked(self, serving: asyncio.Task[None]) -> None:
        """Wait for the first signal, or until our clients are gone."""
        waiting = asyncio.create_task(self._asked.wait())
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def end_now(code: int) -> None:
    """End the servers and the process at once."""
    from mcp_optimizer.upstream.transports.processes import kill_all

    kill_all()
    os._exit(code)


def end_at_the_latest(seconds: float) -> None:
    """Ends the process after this time, whatever hangs. In a thread, because the event loop itself may hang."""
    late = threading.Timer(seconds, end_now, [1])
    late.daemon = True
    late.start()


@contextlib.asynccontextmanager
async def command_socket(
    optimizer: Optimizer, address: str = "", clients: Callable[[], int] | None = None
) -> AsyncIterator[ControlListener]:
    """While open, commands such as `find` and `logs` can query this gateway. `clients` counts those that share it."""
    from mcp_optimizer.app.control.wire import identity

    listener = optimizer.control(address, clients)
    await listener.start(identity(optimizer.settings), os.environ)
    try:
        yield listener
    finally:
        await listener.stop()
