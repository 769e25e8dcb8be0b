"""`serve`: the gateway itself, on stdio or HTTP.

On stdio, the client's first requests are answered while a thread still imports the gateway; nothing slow is imported
at the top.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mcp_optimizer.cli.command_gateway import run, with_installed_parts
from mcp_optimizer.cli.command_options import ONE_SHOT_ONLY, with_settings
from mcp_optimizer.cli.first_answers import first_requests, load_stdio
from mcp_optimizer.cli.serve_http import serve_http
from mcp_optimizer.cli.serving_process import GRACE_SECONDS, STOP_SECONDS, Signals, command_socket, end_at_the_latest
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.caller import Clientele
from mcp_optimizer.runtime.passed_variables import DEPTH_VARIABLE
from mcp_optimizer.runtime.sharing.client_process import share
from mcp_optimizer.runtime.sharing.likeness import ALONE, shared_link
from mcp_optimizer.runtime.worker_place import worker_place
from mcp_optimizer.serving.early_answers import EarlyAnswers
from mcp_optimizer.serving.pipes import has_pipes, own_pipes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


@asynccontextmanager
async def answering_early(settings: Settings) -> AsyncIterator[EarlyAnswers | None]:
    """Answer the client's first requests from now on; None if the server must answer all of them."""
    if not has_pipes():
        yield None
        return
    pipes = await own_pipes()
    early = EarlyAnswers(pipes, first_requests(settings))
    try:
        yield early
    finally:
        await early.stop()
        pipes.close()


_OPEN_FILES = 16_384
_SWITCH = 0.0005
"""Seconds after which a busy thread lets the event loop run."""
_LAST_ANSWER = 0.05
"""Seconds for the last responses to be written to stdout on shutdown."""


_WAITS = """\
Waiting for an MCP client on stdin; Ctrl-C ends it. Clients start this command by themselves:
  mcp-optimizer connect CLIENT            puts it into a client
  mcp-optimizer serve --http 127.0.0.1:8765   serves over HTTP instead, with the dashboard"""


def register(app: typer.Typer) -> None:
    app.command()(serve)


@with_settings(leave_out=ONE_SHOT_ONLY)
def serve(
    *,
    alone: Annotated[
        bool, typer.Option(ALONE, help="On stdio: a gateway for this client only, whatever `shared` says.")
    ] = False,
    settings: Settings,
) -> None:
    """Serve MCP on stdio, or over HTTP with --http HOST:PORT."""
    if settings.workers > 1 and worker_place(os.environ) is None:
        _serve_with_workers(settings)
    make_room()
    if settings.http is None and sys.stdin.isatty():
        print(_WAITS, file=sys.stderr)
    link = shared_link(os.environ)
    is_shared = settings.shared and not alone and DEPTH_VARIABLE not in os.environ
    is_shared = is_shared and link is None and settings.http is None and has_pipes()
    # A settings file decides it, which the start of the program does not read.
    if is_shared:
        if (code := share(sys.argv[1:], os.environ)) is not None:
            os._exit(code)
        link = shared_link(os.environ)
    settings, missing = with_installed_parts(settings)
    if missing:
        print(f"mcp-optimizer: {missing} Until then, clients are served without run_script.", file=sys.stderr)
    traces = _start_tracing(settings) if settings.otlp_endpoint else None
    run(_serving(settings, link))
    if traces is not None:
        traces.shutdown()
    # Bypasses Python's own shutdown, which takes a second and waits for the thread that reads stdin.
    sys.stdout.flush()
    os._exit(0)


def _serving(settings: Settings, link: socket.socket | None) -> Coroutine[Any, Any, None]:
    if link is not None:
        from mcp_optimizer.cli.serve_shared import serve_shared

        return serve_shared(settings, link)
    return _serve_stdio(settings) if settings.http is None else serve_http(settings)


def _serve_with_workers(settings: Settings) -> NoReturn:
    from mcp_optimizer.cli.workers import check_workers, supervise

    check_workers(settings)
    sys.exit(asyncio.run(supervise(settings)))


def _start_tracing(settings: Settings) -> TracerProvider:
    from mcp_optimizer import __version__
    from mcp_optimizer.serving.tracing import start_tracing

    return start_tracing(settings.otlp_endpoint, __version__)


def make_room() -> None:
    """Allow more than a thousand open files, for a thousand clients."""
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(ValueError, OSError):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    # A call creates some hundred objects; collecting after every seventh call would cost more than they do. The second
    # generation is collected often: while thousands of servers start, a hundred thousand new objects would stop the
    # event loop for a tenth of a second.
    gc.set_threshold(5_000, 5, 400)
    # For every read and write, the event loop must get the interpreter lock from a thread that parses a large result.
    sys.setswitchinterval(_SWITCH)


async def _serve_stdio(settings: Settings) -> None:
    async with answering_early(settings) as early:
        # In a thread, so that the client's first requests are answered during the import.
        await asyncio.to_thread(load_stdio)
        await _serve_client(settings, early)


async def _serve_client(settings: Settings, early: EarlyAnswers | None) -> None:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.runtime.memory import kept_tidy
    from mcp_optimizer.serving.stdio import serve_stdio

    signals = Signals()
    optimizer = Optimizer.from_settings(settings, clients=Clientele.ONE)
    if early is not None and early.signpost is not None:
        optimizer.parts.signposts.begin_with(early.signpost)
    server = optimizer.mcp_server()
    optimizer.start(saves_memory=True)
    signals.reload_with(optimizer)
    try:
        async with command_socket(optimizer) as control, kept_tidy():
            serving = asyncio.create_task(serve_stdio(server, optimizer.gate, early))
            await signals.until_asked(serving)
            end_at_the_latest(settings.shutdown_timeout + GRACE_SECONDS)
            await control.stop()
            await optimizer.stop(STOP_SECONDS)
            if not serving.done():
                # After a signal stdin is still open, and leaving this block would wait for its next line.
                await asyncio.wait({serving}, timeout=_LAST_ANSWER)
                sys.stdout.flush()
                os._exit(0)
    finally:
        await optimizer.stop(STOP_SECONDS)
