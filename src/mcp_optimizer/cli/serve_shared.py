"""The gateway that several clients on stdio share. Started by the process of the first (`runtime/sharing`), with which
it has nothing in common but a link; ends when the last client has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer.cli.first_answers import first_requests, load_stdio
from mcp_optimizer.cli.serving_process import GRACE_SECONDS, STOP_SECONDS, Signals, command_socket, end_at_the_latest
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.caller import Clientele
from mcp_optimizer.errors import listed
from mcp_optimizer.runtime.sharing.likeness import like_now, named_now
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.early_answers import NOTHING, EarlyAnswers
from mcp_optimizer.serving.joined_clients import JoinedClient, JoinedClients
from mcp_optimizer.serving.pipes import Pipes, open_pipes

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer

logger = logging.getLogger(__name__)

_LINGER = 3.0
"""Seconds without any client after which the gateway ends. A client that is restarted finds its servers running."""


async def serve_shared(settings: Settings, link: socket.socket) -> None:
    """Serve all clients that join, until the last one has left or a signal comes."""
    await _SharedGateway(settings).run(link)


class _SharedGateway:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loaded = asyncio.Event()
        self._optimizer: Optimizer | None = None
        self._server: Any = None
        self._is_stopping = False
        self._is_parted = asyncio.Event()
        """Whether the server file names a variable for which clients have different values."""
        self._tasks = BackgroundTasks(logger, "A client cannot be served")
        self._open: set[Pipes] = set()
        self._clients = JoinedClients(self._begin, self._reload)

    async def run(self, link: socket.socket) -> None:
        signals = Signals()
        self._clients.begin_with(link)
        self._clients.listen(os.environ)
        self._clients.bound()
        try:
            await self._load(signals)
            await self._serve_all(signals)
        finally:
            self._clients.close()

    async def _load(self, signals: Signals) -> None:
        """Import what is served, however long that takes. Ends with the last client, or a signal, as later."""
        loading = BackgroundTasks(logger, "The gateway cannot be loaded").spawn(asyncio.to_thread(load_stdio))
        over = self._tasks.spawn(self._until_over())
        await signals.until_asked(self._tasks.spawn(_one_of(loading, over)))
        over.cancel()
        if loading.cancelled() or not loading.done():
            self._clients.close()
            os._exit(0)
        # The client's process is not to hear that its client has left.
        self._is_stopping = loading.exception() is not None
        loading.result()

    async def _serve_all(self, signals: Signals) -> None:
        from mcp_optimizer.app.optimizer import Optimizer
        from mcp_optimizer.runtime.memory import kept_tidy

        self._optimizer = optimizer = Optimizer.from_settings(self._settings, clients=Clientele.JOINED)
        if not self._is_for_all():
            # The file has changed since the first client's process read it.
            self._clients.close()
            os._exit(0)
        self._server = optimizer.mcp_server()
        optimizer.ask_before_reload(self._is_for_all)
        optimizer.start(saves_memory=True)
        signals.reload_with(optimizer)
        with self._log_shown_to_clients():
            self._loaded.set()
            try:
                async with command_socket(optimizer, clients=self._count) as control, kept_tidy():
                    await signals.until_asked(self._tasks.spawn(self._until_over()))
                    self._stop_reading()
                    end_at_the_latest(self._settings.shutdown_timeout + GRACE_SECONDS)
                    self._clients.close()
                    await control.stop()
            finally:
                await optimizer.stop(STOP_SECONDS)
        if self._open:
            # Their requests that are open stay so: the gateway that takes over answers them.
            os._exit(0)

    async def _until_over(self) -> None:
        """Wait until no client is left, or clients may not share a gateway any more."""
        await _one_of(self._tasks.spawn(self._clients.none_for(_LINGER)), self._tasks.spawn(self._is_parted.wait()))

    # Clients.

    def _is_for_all(self) -> bool:
        """Whether the files, as they are now, mean the same for all clients. If not, every client's process looks for
        a gateway again, and finds one with its own values.
        """
        where = sys.argv[1:], os.environ, Path.cwd()
        if parted := self._clients.parted_by(named_now(*where)):
            text = "The server file now names %s, with different values for different clients: they use gateways apart."
            logger.warning(text, listed(parted))
            self._is_parted.set()
            return False
        self._clients.want(lambda like: like_now(like, *where))
        return True

    def _count(self) -> int:
        return len(self._clients.clients())

    def _begin(self, client: JoinedClient) -> None:
        self._tasks.spawn(self._serve(client))

    async def _serve(self, client: JoinedClient) -> None:
        try:
            pipes = await open_pipes(client.stdin, client.stdout, client.heard)
        except (OSError, ValueError):
            self._clients.left(client)
            return
        self._open.add(pipes)
        leaving = self._tasks.spawn(self._end_when_asked(client, pipes))
        try:
            await self._serve_pipes(client, pipes)
        finally:
            leaving.cancel()
            self._open.discard(pipes)
            if not self._is_stopping:
                self._clients.left(client)

    async def _serve_pipes(self, client: JoinedClient, pipes: Pipes) -> None:
        early = None
        if client.standing.is_new and not self._loaded.is_set():
            early = EarlyAnswers(pipes, first_requests(self._settings), client.answered)
        ends = self._tasks.spawn(client.is_to_end.wait())
        await _one_of(self._tasks.spawn(self._loaded.wait()), ends)
        if not self._loaded.is_set():
            if early is not None:
                await early.stop()
            pipes.close()
            return
        client.serving()
        from mcp_optimizer.serving.relay.connected import PipeName
        from mcp_optimizer.serving.stdio import SharedPipe, serve_pipes

        assert self._optimizer is not None
        heard = await early.stop() if early is not None else NOTHING
        shared = SharedPipe(PipeName(client.name), client, client.standing)
        try:
            await serve_pipes(self._server, self._optimizer.gate, pipes, heard, shared)
        finally:
            self._optimizer.client_left(shared.name.key)

    async def _end_when_asked(self, client: JoinedClient, pipes: Pipes) -> None:
        """End a client whose process is to end, after its requests, or is gone: as if it had closed its pipe."""
        await client.is_to_end.wait()
        pipes.reading.pause_reading()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_timeout):
                await client.settled()
        pipes.reader.feed_eof()

    def _stop_reading(self) -> None:
        """What clients say from now on waits in their pipes, for the gateway that takes over."""
        self._is_stopping = True
        for pipes in self._open:
            with contextlib.suppress(RuntimeError):
                pipes.reading.pause_reading()

    def _reload(self) -> None:
        if self._optimizer is not None:
            self._tasks.spawn(self._optimizer.reload())

    # The log.

    @contextlib.contextmanager
    def _log_shown_to_clients(self) -> Any:
        """Our stderr belongs to the client that came first, which may leave, or not read it: all clients get what is
        said, from a pipe that nobody waits for.
        """
        said, says = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        for descriptor in (1, 2):
            os.dup2(says, descriptor)
        os.close(says)
        loop = asyncio.get_running_loop()
        loop.add_reader(said, self._show, said)
        try:
            yield
        finally:
            self._show(said)
            loop.remove_reader(said)

    def _show(self, said: int) -> None:
        with contextlib.suppress(BlockingIOError):
            log = os.read(said, 65_536)
            for client in self._clients.clients():
                client.show(log)


async def _one_of(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of these tasks is done; the others are cancelled."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)
    return ends
