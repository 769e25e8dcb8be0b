"""`serve`: the gateway itself, on stdio or HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import typer

from mcp_optimizer.cli.options import ONE_SHOT_ONLY, with_settings
from mcp_optimizer.cli.running import run
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.app import Optimizer


def register(app: typer.Typer) -> None:
    app.command()(serve)


@with_settings(leave_out=ONE_SHOT_ONLY)
def serve(settings: Settings) -> None:
    """Serve MCP on stdio, or over HTTP with --http HOST:PORT."""
    if settings.http is None:
        run(_serve_stdio(settings))
        # Reading stdin happens in a thread that only the next line, or the end of stdin, would end.
        sys.stdout.flush()
        os._exit(0)
    run(_serve_http(settings))


async def _serve_stdio(settings: Settings) -> None:
    from mcp.server.stdio import stdio_server

    from mcp_optimizer.app import Optimizer

    optimizer = Optimizer.from_settings(settings)
    server = optimizer.mcp_server()
    optimizer.start()
    try:
        async with stdio_server() as (read_stream, write_stream):
            serving = asyncio.create_task(server.run(read_stream, write_stream, server.create_initialization_options()))
            await _until_done_or_signalled(serving)
            await optimizer.stop()
            if not serving.done():
                # Ended by a signal: stdin is still open, and leaving this block would wait for its next line.
                sys.stdout.flush()
                os._exit(0)
    finally:
        await optimizer.stop()


async def _until_done_or_signalled(serving: asyncio.Task[None]) -> None:
    signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    waiting = asyncio.create_task(signalled.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _serve_http(settings: Settings) -> None:
    import uvicorn

    from mcp_optimizer import __version__
    from mcp_optimizer.app import Optimizer
    from mcp_optimizer.http import build_http_app

    host, port = settings.http_address
    optimizer = Optimizer.from_settings(settings)
    app = build_http_app(
        optimizer.mcp_server(),
        optimizer.catalog,
        host=host,
        allowed_hosts=_items(settings.allowed_hosts),
        allowed_origins=_items(settings.allowed_origins),
        version=__version__,
    )
    config = uvicorn.Config(app, host=host, port=port, log_level="critical", timeout_graceful_shutdown=10)
    http = uvicorn.Server(config)
    optimizer.start()
    announcing = asyncio.create_task(_announce(http, host, optimizer))
    try:
        await http.serve()
    finally:
        announcing.cancel()
        await optimizer.stop()


async def _announce(http: object, host: str, optimizer: Optimizer) -> None:
    import uvicorn

    assert isinstance(http, uvicorn.Server)
    while not http.started:  # noqa: ASYNC110 - uvicorn has a flag and no event
        await asyncio.sleep(0.02)
    port = http.servers[0].sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    names = len(optimizer.servers())
    print(f"mcp-optimizer serves {names} servers at http://{shown}:{port}/mcp", file=sys.stderr, flush=True)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
