"""Listens on this machine for the browser's return from a login, and serves nothing else. Used by `logins` and the
login command.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.oauth_client import NotAwaited
from mcp_optimizer.runtime.http_server import HttpServer
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

PATH = "/callback"
_HOSTS = ("127.0.0.1", "::1")
PORT = 33418
"""The preferred port: with the same address, the gateway need not register at an authorization server again."""
_LONGEST_QUERY = 20_000

Finish = Callable[[str], Awaitable[str]]
"""Finishes a login with the address that the browser was redirected to; returns the name of the server."""


class Callback:
    """The address that the browser returns to, and the outcome of the login."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()


@asynccontextmanager
async def waiting_for_browser(finish: Finish, port: int | None = None) -> AsyncIterator[Callback]:
    """Listen at `http://localhost:PORT/callback`: on the given port, otherwise on the usual one or a free one."""
    sockets = _sockets(port)
    callback = Callback(f"http://localhost:{sockets[0].getsockname()[1]}{PATH}")

    async def come_back(request: Request) -> Response:
        query = request.url.query[:_LONGEST_QUERY]
        try:
            server = await finish(f"{callback.address}?{query}")
        except NotAwaited as failure:
            # A stray request must not end the wait of the person who is logging in.
            return _failed(failure)
        except OptimizerError as failure:
            if not callback.done.done():
                callback.done.set_exception(failure)
                # Retrieve the exception, so that asyncio does not log it if `done` is never awaited.
                callback.done.exception()
            return _failed(failure)
        if not callback.done.done():
            callback.done.set_result(server)
        return page("Logged in", f"You are logged in to {server}. You may close this window.")

    app = Starlette(routes=[Route(PATH, come_back)])
    # No access log: the query contains the authorization code.
    server = HttpServer(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    tasks = BackgroundTasks(logger, "Waiting for the browser failed")
    serving = tasks.spawn(server.serve(sockets=sockets))
    try:
        yield callback
    finally:
        server.finish()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(serving, 5)
        for one in sockets:
            one.close()


def _failed(failure: OptimizerError) -> HTMLResponse:
    return page("Not logged in", f"{failure}. You may close this window.", 400)


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
    """An HTML page with a short text."""
    body = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<meta name=referrer content=no-referrer>"
        f"<title>{html.escape(title)}</title><style>body{{font:16px/1.5 system-ui;max-width:32em;margin:15vh auto;"
        "padding:0 1em;color-scheme:light dark}</style>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></html>"
    )
    headers = {"cache-control": "no-store", "referrer-policy": "no-referrer", "content-security-policy": _POLICY}
    return HTMLResponse(body, status, headers)


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def _sockets(port: int | None) -> list[socket.socket]:
    """Sockets for one port on both loopback addresses, or on IPv4 only if the machine has no IPv6."""
    first = _bound(_HOSTS[0], port) if port else _bound(_HOSTS[0], PORT) or _bound(_HOSTS[0], 0)
    if first is None:
        raise ConfigurationError(
            f"The port {port} is in use. End what uses it, or write another callback_port in the auth of the entry."
        )
    second = _bound(_HOSTS[1], int(first.getsockname()[1]))
    return [first] if second is None else [first, second]


def _bound(host: str, port: int) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind((host, port))
        # Listen immediately: until then, another process may bind the same port.
        found.listen()
    except OSError:
        found.close()
        return None
    return found
