"""`serve`: the gateway itself, on stdio or HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from mcp_optimizer.cli.early import answering_early
from mcp_optimizer.cli.listening import listen
from mcp_optimizer.cli.options import ONE_SHOT_ONLY, with_settings
from mcp_optimizer.cli.running import run
from mcp_optimizer.errors import CatalogError, ConfigurationError
from mcp_optimizer.runtime.quick_imports import quick_imports
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.runtime.terminal_text import counted
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from mcp_optimizer.app import Optimizer
    from mcp_optimizer.control.listener import ControlListener
    from mcp_optimizer.runtime.http_server import HttpServer
    from mcp_optimizer.serving.early_answers import EarlyAnswers

logger = logging.getLogger(__name__)

_OPEN_FILES = 16_384
_KEEP_ALIVE = 75
"""Seconds an idle connection is kept: longer than clients keep theirs, so none is closed while it is used."""
_SWITCH = 0.0005
"""Seconds after which a busy thread yields to the event loop."""
_LAST_WORDS = 0.5
"""Seconds for the last responses to reach their clients on shutdown."""
_LAST_ANSWER = 0.05
"""The same on stdio, where only writing remains."""
_END = 1.7
"""Seconds for everything to end after the calls in progress have."""
_AFTERWARDS = 1.9
"""Seconds after `shutdown_timeout` at which the process ends, whatever hangs."""


def register(app: typer.Typer) -> None:
    app.command()(serve)


@with_settings(leave_out=ONE_SHOT_ONLY)
def serve(settings: Settings) -> None:
    """Serve MCP on stdio, or over HTTP with --http HOST:PORT."""
    make_room()
    traces = _start_tracing(settings) if settings.otlp_endpoint else None
    run(_serve_stdio(settings) if settings.http is None else _serve_http(settings))
    if traces is not None:
        traces.shutdown()
    # Bypasses Python's own shutdown, which takes a second and waits for the thread that reads stdin.
    sys.stdout.flush()
    os._exit(0)


def _start_tracing(settings: Settings) -> TracerProvider:
    from mcp_optimizer import __version__
    from mcp_optimizer.serving.tracing import start_tracing

    return start_tracing(settings.otlp_endpoint, __version__)


def make_room() -> None:
    """A thousand clients need more than a thousand open files."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    # A call creates some hundred objects; collecting after every seventh call would cost more than they do.
    gc.set_threshold(5_000, 20, 100)
    # Every read and write of the event loop needs the interpreter from a thread that reads a large result.
    sys.setswitchinterval(_SWITCH)


class _Signals:
    """SIGINT and SIGTERM: the first requests a shutdown, the second forces it."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._reloads = BackgroundTasks(logger, "The files could not be read again")
        self.is_interactive = False
        """Whether somebody at a terminal waits for the process to end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        if self._asked.is_set():
            _end_now(128 + number)
        self.is_interactive = number == signal.SIGINT
        self._asked.set()

    def reload_with(self, optimizer: Optimizer) -> None:
        """SIGHUP: read the files again. When our terminal is closed, the same signal means the end."""
        number = getattr(signal, "SIGHUP", None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:
            # As under nohup: whoever started us wants us to live on.
            return
        had_terminal = _has_terminal()

        def take() -> None:
            if had_terminal and not _has_terminal():
                self._take(signal.SIGTERM)
            else:
                self._reloads.spawn(optimizer.reload())

        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, take)

    async def until_asked(self, serving: asyncio.Task[None]) -> None:
        """Wait for the first signal, or for the end of our clients."""
        waiting = asyncio.create_task(self._asked.wait())
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _end_now(code: int) -> None:
    """End the servers and the process at once."""
    from mcp_optimizer.upstream.processes import kill_all

    kill_all()
    os._exit(code)


def _end_at_the_latest(seconds: float) -> None:
    """Ends the process whatever hangs from now on. In a thread, because the event loop itself may hang."""
    late = threading.Timer(seconds, _end_now, [1])
    late.daemon = True
    late.start()


async def _serve_stdio(settings: Settings) -> None:
    async with answering_early(settings) as early:
        # In a thread, so that the client's first requests are answered meanwhile.
        await asyncio.to_thread(_load_stdio)
        await _serve_client(settings, early)


def _load_stdio() -> None:
    with quick_imports():
        import_module("mcp_optimizer.app")
        import_module("mcp_optimizer.serving.stdio")


async def _serve_client(settings: Settings, early: EarlyAnswers | None) -> None:
    from mcp_optimizer.app import Optimizer
    from mcp_optimizer.runtime.memory import kept_tidy
    from mcp_optimizer.serving.stdio import message_streams

    signals = _Signals()
    optimizer = Optimizer.from_settings(settings, has_one_client=True)
    server = optimizer.mcp_server()
    optimizer.start()
    signals.reload_with(optimizer)
    try:
        async with (
            _reached_by_commands(optimizer) as control,
            kept_tidy(),
            message_streams(optimizer.gate, early) as (read_stream, write_stream),
        ):
            serving = asyncio.create_task(server.run(read_stream, write_stream, server.create_initialization_options()))
            await signals.until_asked(serving)
            _end_at_the_latest(settings.shutdown_timeout + _AFTERWARDS)
            await control.stop()
            await optimizer.stop(_END)
            if not serving.done():
                # After a signal stdin is still open, and leaving this block would wait for its next line.
                await asyncio.wait({serving}, timeout=_LAST_ANSWER)
                sys.stdout.flush()
                os._exit(0)
    finally:
        await optimizer.stop(_END)


async def _serve_http(settings: Settings) -> None:
    with quick_imports():
        import uvicorn

        from mcp_optimizer.app import Optimizer
        from mcp_optimizer.runtime.http_server import HttpServer
        from mcp_optimizer.runtime.memory import kept_tidy
        from mcp_optimizer.serving.http_connections import bounded_connections

    signals = _Signals()
    host, port = settings.http_address
    optimizer = Optimizer.from_settings(settings)
    app = optimizer.http_app(host)
    await _somebody_may_call(settings, host)
    listening = listen(host, port)
    connections = bounded_connections(settings.limits)
    http = HttpServer(
        uvicorn.Config(app, http=connections, ws="none", log_level="critical", timeout_keep_alive=_KEEP_ALIVE)
    )
    optimizer.start()
    signals.reload_with(optimizer)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/mcp"
    looks = f", dashboard at {address.removesuffix('mcp')}" if settings.dashboard else ""
    print(
        f"mcp-optimizer serves {counted(len(optimizer.servers()), 'server')} at {address}{looks}",
        file=sys.stderr,
        flush=True,
    )
    try:
        serving = asyncio.create_task(http.serve(sockets=[listening]))
        async with _reached_by_commands(optimizer, address), kept_tidy():
            await signals.until_asked(serving)
        _end_at_the_latest(settings.shutdown_timeout + _AFTERWARDS)
        await _stop_serving(optimizer, http, serving, 0.0 if signals.is_interactive else settings.shutdown_delay)
    finally:
        await optimizer.stop(_END)


@contextlib.asynccontextmanager
async def _reached_by_commands(optimizer: Optimizer, address: str = "") -> AsyncIterator[ControlListener]:
    """Commands such as `find` and `logs` ask this gateway while it serves."""
    from mcp_optimizer.control.places import identity

    listener = optimizer.control(address)
    await listener.start(identity(optimizer.settings), os.environ)
    try:
        yield listener
    finally:
        await listener.stop()


async def _somebody_may_call(settings: Settings, host: str) -> None:
    """Beyond loopback, a gateway that nobody has a key for is a mistake, and better noticed now than by its users."""
    from mcp_optimizer.app.options import is_open
    from mcp_optimizer.serving.http import is_loopback

    if is_loopback(host) or settings.token_issuers or is_open(settings, is_loopback=False):
        return
    how = "or say --open-to-anyone, if everybody who can reach it may call every tool"
    place = settings.database_place
    if place is None:
        raise ConfigurationError(
            f"Serving on {host} needs callers with keys, which are kept in the catalog database, and --database none "
            f"stores nothing. Use a file or PostgreSQL, {how}."
        )
    from mcp_optimizer.callers.known_keys import opened_keys

    try:
        async with opened_keys(place) as keys:
            found = await keys.living(time.time_ns() // 1_000_000)
    except CatalogError as error:
        # Until it can be read nobody is let in, so nothing is lost by going on.
        print(f"warning: keys cannot be verified yet: {error}", file=sys.stderr)
        return
    if not found:
        raise ConfigurationError(
            f"Serving on {host} is reachable from other machines, and nobody has a key yet. Make one with "
            f"`mcp-optimizer key create --name NAME`, {how}."
        )


async def _stop_serving(optimizer: Optimizer, http: HttpServer, serving: asyncio.Task[None], delay: float) -> None:
    """First announce the shutdown, then accept no more calls, then finish those in progress, then end everything."""
    optimizer.announce_stop()
    if not serving.done():
        # Load balancers poll /ready only now and then.
        await asyncio.sleep(min(delay, optimizer.settings.shutdown_timeout))
    await optimizer.drained()
    optimizer.release_streams()
    # Unfinished calls get their error now; the last responses are written while the servers end.
    ending = asyncio.create_task(optimizer.stop(_END))
    await asyncio.sleep(0)
    http.finish()
    # A client that only listens would hold us up for ever.
    await asyncio.wait({serving}, timeout=_LAST_WORDS)
    http.break_off()
    await asyncio.wait({serving, ending})
    await serving
