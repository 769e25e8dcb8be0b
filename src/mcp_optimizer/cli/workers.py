"""`serve --workers N`: N gateway processes on one port, and this process, which starts, watches and ends them.

Each worker is a whole gateway with servers of its own; they share through the database, as gateways on several machines
do. This process serves nothing and loads no library for it. A worker that dies is started again; one that keeps dying
as soon as it listens ends all of them, because a restart does not help then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from mcp_optimizer.cli.serve_http import listen, private_host, shown_address
from mcp_optimizer.cli.serving_process import GRACE_SECONDS, has_terminal
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.runtime.worker_place import WorkerPlace

logger = logging.getLogger(__name__)

_WRONG_SETTINGS = 2
"""The exit code of a process whose settings are wrong: a restart would fail in the same way."""
_AT_ONCE = 10.0
"""A worker that listened for fewer seconds than this died at once."""
_MOST_IN_A_ROW = 5
_PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0)
_SPARE = 2.0
"""Seconds after a worker's own shutdown limit at which it is killed."""

BALANCES = sys.platform.startswith("linux")
"""Whether the system spreads connections over several sockets on one port. Elsewhere workers share one socket."""


def check_workers(settings: Settings) -> None:
    """Raises ConfigurationError if the settings do not work with several processes."""
    if settings.http is None:
        raise ConfigurationError("--workers needs --http HOST:PORT: on stdio there is one client and one process.")
    if settings.database_place is None:
        raise ConfigurationError(
            "--workers needs a database, through which workers share sessions, results and keys. Leave out "
            "--database none, or serve with one worker."
        )
    if not is_loopback(private_host(settings.peer_address)) and is_loopback(settings.http_address[0]):
        raise ConfigurationError(
            "With --peer-address, the workers listen there for other gateways. Serve beyond loopback too, with --http "
            "HOST:PORT, or leave out --peer-address."
        )
    if os.name != "posix":
        raise ConfigurationError("--workers needs a system with inherited sockets, such as Linux or macOS.")


class Worker:
    """One worker position, and the process that currently fills it."""

    def __init__(self, number: int, private: socket.socket) -> None:
        self.number = number
        self.private = private
        self.process: asyncio.subprocess.Process | None = None
        self.listening_since: float | None = None
        self.short_lives = 0

    def began(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.listening_since = None

    def listens(self) -> None:
        self.listening_since = time.monotonic()

    def send(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, and every process still in its session."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def ended(self) -> float:
        """Its process has ended. Returns the seconds until the next one starts."""
        lived = time.monotonic() - self.listening_since if self.listening_since is not None else 0.0
        self.short_lives = 0 if lived >= _AT_ONCE else self.short_lives + 1
        return _PAUSES[min(max(self.short_lives - 1, 0), len(_PAUSES) - 1)]


class GatewayWorkers:
    """All worker processes."""

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        """`command` starts one gateway with these settings."""
        self._settings = settings
        self._command = tuple(command)
        self._host, self._port = settings.http_address
        first = listen(self._host, self._port, is_one_of_many=BALANCES)
        self._since = time.time()
        self._port = first.getsockname()[1]
        self._public = {1: first}
        private = private_host(settings.peer_address)
        self._workers = [Worker(number, listen(private, 0)) for number in range(1, settings.workers + 1)]
        self._addresses = tuple(shown_address(worker.private) for worker in self._workers)
        self._tasks = BackgroundTasks(logger, "A worker could not be started")
        self._asked: list[int] = []
        self._changed = asyncio.Event()
        self._failure: OptimizerError | None = None
        self._code = 0

    async def run(self) -> int:
        """Run until a signal, or until the workers cannot be kept alive. Returns the exit code."""
        self._take_signals()
        first, *others = self._workers
        # The first one alone, so that errors in the settings are reported once, and a new database is migrated once.
        self._tasks.spawn(self._keep(first))
        await self._until(lambda: first.listening_since is not None or self._is_over())
        if not self._is_over():
            shown = f"[{self._host}]" if ":" in self._host else self._host
            address = f"http://{shown}:{self._port}/mcp"
            print(f"mcp-optimizer serves with {len(self._workers)} workers at {address}", file=sys.stderr, flush=True)
        for worker in others:
            if not self._is_over():
                self._tasks.spawn(self._keep(worker))
        await self._until(self._is_over)
        await self._end()
        if self._failure is not None:
            raise self._failure
        return self._code

    def _is_over(self) -> bool:
        return bool(self._asked) or self._failure is not None or self._code != 0

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            had_terminal = has_terminal()
            loop.add_signal_handler(signal.SIGHUP, self._hang_up, had_terminal)

    def _stop(self, number: int) -> None:
        self._asked.append(number)
        for worker in self._workers:
            # A second signal ends each worker at once.
            worker.send(number)
        self._changed.set()

    def _hang_up(self, had_terminal: bool) -> None:
        """Read the files again; or stop, if our terminal was closed."""
        if had_terminal and not has_terminal():
            self._stop(signal.SIGTERM)
            return
        for worker in self._workers:
            # A worker that is still starting reads the files anyway, and the signal would end it.
            if worker.listening_since is not None:
                worker.send(signal.SIGHUP)

    async def _keep(self, worker: Worker) -> None:
        """Start a worker, and start it again whenever it dies."""
        while not self._is_over():
            code = await self._one_life(worker)
            if self._is_over():
                return
            if code == _WRONG_SETTINGS and worker.listening_since is None:
                # The process has reported the error itself.
                self._code = code
            pause = worker.ended()
            if worker.short_lives >= _MOST_IN_A_ROW and not self._code:
                self._failure = OptimizerError(
                    f"Worker {worker.number} died {worker.short_lives} times in a row as soon as it served, at last "
                    f"with {_described(code)}; see its log above. All workers are stopped."
                )
            self._changed.set()
            if self._is_over():
                return
            logger.warning("Worker %d ended with %s; it is started again.", worker.number, _described(code))
            if pause:
                # Until it is back, its share of new connections goes to the other workers.
                self._release(worker.number)
                await asyncio.sleep(pause)

    async def _one_life(self, worker: Worker) -> int:
        link, theirs = socket.socketpair()
        public = self._socket_for(worker.number)
        place = WorkerPlace(
            worker.number,
            len(self._workers),
            public.fileno(),
            worker.private.fileno(),
            theirs.fileno(),
            self._addresses,
            self._since,
        )
        with link:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**os.environ, **place.variable()},
                    pass_fds=place.descriptors,
                    # Ctrl-C reaches only us, and we pass it on: a worker that got it twice would end at once.
                    start_new_session=True,
                )
            worker.began(process)
            for number in self._asked:
                worker.send(number)
            link.setblocking(False)
            if await asyncio.get_running_loop().sock_recv(link, 1):
                worker.listens()
                self._changed.set()
            return await process.wait()

    def _socket_for(self, number: int) -> socket.socket:
        if not BALANCES:
            return self._public[1]
        if number not in self._public:
            self._public[number] = listen(self._host, self._port, is_one_of_many=True)
        return self._public[number]

    def _release(self, number: int) -> None:
        if BALANCES:
            self._public.pop(number).close()

    async def _end(self) -> None:
        """Let all workers finish their calls; kill those that take too long."""
        # Only the workers' own sockets stay open, so that no client connects to one that is not served any more.
        for each in self._public.values():
            each.close()
        if not self._asked:
            self._stop(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_timeout + GRACE_SECONDS + _SPARE):
                await self._tasks.settled()
        for worker in self._workers:
            worker.kill()
            worker.private.close()


def _described(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def supervise(settings: Settings) -> int:
    """Run the workers to their end; returns the exit code."""
    return await GatewayWorkers(settings, [sys.executable, "-P", "-m", "mcp_optimizer_gateway", *sys.argv[1:]]).run()
