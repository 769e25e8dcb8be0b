"""Serves the gateway over HTTP, from the listening socket to the last response before it stops.

Also determines the address at which people and other gateways reach it. Used by `serve` and by `workers`; importing
this module does not load the gateway.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp_optimizer.cli.serving_process import GRACE_SECONDS, STOP_SECONDS, Signals, command_socket, end_at_the_latest
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import CatalogError, ConfigurationError
from mcp_optimizer.runtime.lazy import quick_imports
from mcp_optimizer.runtime.terminal_text import counted
from mcp_optimizer.runtime.worker_place import WorkerPlace, worker_place

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.runtime.http_server import HttpServer

_BACKLOG = 1_024


def listen(host: str, port: int, *, is_one_of_many: bool = False) -> socket.socket:
    """Bind before anything starts, so that a port in use does not cost the start of ten servers.

    `is_one_of_many`: the system spreads connections over all such sockets at this port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    if sys.platform == "win32":
        # SO_REUSEADDR there lets any program listen at our address, too, and take what clients send us.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_one_of_many and sys.platform != "win32":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another address with --http."
        ) from error
    # Clients may connect from now on; they are answered once the application is up.
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening


def reached_from_outside(host: str, port: int, database: object) -> str:
    """The address at which other gateways reach one that listens here. For one that listens on all addresses, the
    local address used to reach the database is the likeliest.
    """
    if _is_everywhere(host):
        host = _local_address(database) or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def private_host(peer_address: str) -> str:
    """The host on which a worker listens for other gateways: loopback, unless they run on other machines."""
    return (urlsplit(peer_address).hostname or "") if peer_address else "127.0.0.1"


def shown_address(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _local_address(database: object) -> str:
    try:
        there = urlsplit(database) if isinstance(database, str) else None
        if there is None or not there.hostname:
            return ""
        [(family, kind, number, _, address), *_] = socket.getaddrinfo(
            there.hostname, there.port or 5432, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind, number) as trial:
            # Sends nothing: the system only chooses a route.
            trial.connect(address)
            return str(trial.getsockname()[0])
    except (OSError, ValueError):
        return ""


_KEEP_ALIVE = 75
"""Seconds an idle connection is kept: longer than clients keep theirs, so none is closed while in use."""
_USUAL_NOTICE = 3.0
"""Seconds within which a load balancer usually notices that `/ready` changed."""
_LAST_WORDS = 0.5
"""Seconds for the last responses to reach their clients on shutdown."""


async def serve_http(settings: Settings) -> None:
    with quick_imports():
        import uvicorn

        from mcp_optimizer.app.optimizer import Optimizer
        from mcp_optimizer.domain.addresses import is_loopback
        from mcp_optimizer.runtime.http_server import HttpServer
        from mcp_optimizer.runtime.memory import kept_tidy
        from mcp_optimizer.serving.http_connections import bounded_connections

    signals = Signals()
    host, port = settings.http_address
    optimizer = Optimizer.from_settings(settings)
    app = optimizer.http_app(host)
    await _somebody_may_call(settings, host)
    place = worker_place(os.environ)
    sockets = list(place.sockets()) if place is not None else [listen(host, port)]
    connections = bounded_connections(settings.limits)
    http = HttpServer(
        uvicorn.Config(
            app,
            http=connections,
            ws="none",
            log_level="critical",
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE,
            # Otherwise a header from any loopback client could set the address and scheme that it seems to come from.
            proxy_headers=False,
        )
    )
    for one in sockets[:2]:
        optimizer.listening(one.getsockname()[1])
    if is_loopback(host):
        optimizer.bind_beside(sockets[0], is_one_of_many=place is not None)
    optimizer.start(saves_memory=True)
    optimizer.join(await asyncio.to_thread(_peer_address, settings, place, sockets[0].getsockname()[1]))
    signals.reload_with(optimizer)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{sockets[0].getsockname()[1]}/mcp"
    try:
        serving = asyncio.create_task(http.serve(sockets=sockets[:2]))
        if place is None:
            _say_where(optimizer, address)
        else:
            _join(sockets[2], signals)
        async with command_socket(optimizer, address), kept_tidy():
            await signals.until_asked(serving)
        end_at_the_latest(settings.shutdown_timeout + GRACE_SECONDS)
        await _stop_serving(optimizer, http, serving, _notice(optimizer, is_interactive=signals.is_interactive))
    finally:
        await optimizer.stop(STOP_SECONDS)


def _peer_address(settings: Settings, place: WorkerPlace | None, port: int) -> str:
    """The address at which other gateways reach this one; a worker has its own socket for that."""
    if place is not None:
        return f"http://{place.address}"
    return settings.peer_address or reached_from_outside(settings.http_address[0], port, settings.database_place)


def _say_where(optimizer: Optimizer, address: str) -> None:
    place = f", dashboard at {address.removesuffix('mcp')} (`{dashboard_command(optimizer.settings)}` opens it)"
    looks = place if optimizer.settings.dashboard else ""
    servers = counted(len(optimizer.servers()), "server")
    print(f"mcp-optimizer serves {servers} at {address}{looks}", file=sys.stderr, flush=True)


def dashboard_command(settings: Settings) -> str:
    """The command that opens the dashboard of a gateway with these settings, from any folder: commands find a gateway
    by its servers and its database.
    """
    options: list[str] = []
    if settings.demo:
        options.append("--demo")
    elif settings.config is not None:
        options += ["--config", os.path.abspath(settings.server_file)]
    if settings.servers:
        options += ["--servers", settings.servers]
    if settings.database:
        place = settings.database_place
        # Not a database address, which may contain a password.
        shown = os.path.abspath(place) if isinstance(place, Path) else "postgresql://..." if place else "none"
        options += ["--database", shown]
    return shlex.join(["mcp-optimizer", "dashboard", *options])


def _join(link: socket.socket, signals: Signals) -> None:
    """Tell the process that started this worker that it serves, and end when that process does."""
    link.send(b"1")
    signals.stop_with(link)


async def _somebody_may_call(settings: Settings, host: str) -> None:
    """Beyond loopback, a gateway without any key is a mistake: report it now, before its users find out."""
    from mcp_optimizer.app.part_options import is_open
    from mcp_optimizer.domain.addresses import is_loopback

    if is_loopback(host) or settings.token_issuers or is_open(settings, is_loopback=False):
        return
    how = "or use --open-to-anyone, if anyone who can reach it may call every tool"
    place = settings.database_place
    if place is None:
        raise ConfigurationError(
            f"Serving on {host} needs callers with keys, which are kept in the catalog database, and --database none "
            f"stores nothing. Use a file or PostgreSQL, {how}."
        )
    from mcp_optimizer.access.callers.keys import opened_keys

    try:
        async with opened_keys(place) as keys:
            found = await keys.living(time.time_ns() // 1_000_000)
    except CatalogError as error:
        # Until the keys can be read, every call is refused, so it is safe to go on.
        print(f"warning: keys cannot be verified yet: {error}", file=sys.stderr)
        return
    if not found:
        # The demo has a database of its own.
        command = "mcp-optimizer key create --name NAME" + " --demo" * settings.demo
        raise ConfigurationError(
            f"Serving on {host} is reachable from other machines, and there is no key yet. Make one with "
            f"`{command}`, {how}."
        )


def _notice(optimizer: Optimizer, *, is_interactive: bool) -> float:
    """Seconds between announcing the stop and refusing calls. None at a terminal, where a person waits."""
    if is_interactive:
        return 0.0
    if optimizer.settings.shutdown_delay is not None:
        return optimizer.settings.shutdown_delay
    return _USUAL_NOTICE if optimizer.is_watched else 0.0


async def _stop_serving(optimizer: Optimizer, http: HttpServer, serving: asyncio.Task[None], delay: float) -> None:
    """First announce the shutdown, then accept no more calls, then finish those in progress, then end everything."""
    optimizer.announce_stop()
    if not serving.done():
        # Load balancers poll /ready only at intervals.
        await asyncio.sleep(min(delay, optimizer.settings.shutdown_timeout))
    await optimizer.drained()
    optimizer.release_streams()
    # Unfinished calls get their error now; the last responses are written while the servers end.
    ending = asyncio.create_task(optimizer.stop(STOP_SECONDS))
    await asyncio.sleep(0)
    http.finish()
    # A client that only listens would keep us waiting for ever.
    await asyncio.wait({serving}, timeout=_LAST_WORDS)
    http.break_off()
    await asyncio.wait({serving, ending})
    await serving
