"""How an optimizer is reached from outside: its MCP server, the HTTP application with the dashboard, and the command
socket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcp_optimizer import __version__
from mcp_optimizer.app.control.answers import Answers, AnswerSources, Invite, Operations
from mcp_optimizer.app.control.listener import ControlListener
from mcp_optimizer.app.costs import Costs
from mcp_optimizer.app.life import Life
from mcp_optimizer.app.part_options import is_open, is_transparent, selected_profile, server_options
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.app.setting_values import items
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.worker_place import worker_name

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from mcp_optimizer.app.reloading import Reloading
    from mcp_optimizer.dashboard.overview_routes import Dashboard
    from mcp_optimizer.domain.credentials import TokenIssuer


def command_answers(
    parts: Parts,
    life: Life,
    address: str = "",
    operations: Operations | None = None,
    clients: Callable[[], int] | None = None,
) -> Answers:
    """`address`: where clients reach the gateway, if it serves over HTTP. `clients` counts those that share it."""
    settings = parts.settings
    about: dict[str, Any] = {
        "version": __version__,
        "server_file": None if settings.demo else os.path.realpath(settings.server_file),
        "address": address or "stdio",
    }
    if worker := worker_name(os.environ):
        about["worker"] = worker
    return Answers(
        AnswerSources(
            gateway=parts.gateway,
            forms=parts.forms,
            lists=parts.lists,
            states=parts.pool.states,
            sessions=parts.pool.sessions,
            settled=life.wait_for_servers,
            detail=Detail(settings.detail),
            profile=selected_profile(settings),
            about=about,
            clients=clients,
            operations=operations,
            entrance=_entrance(parts, address) if address and settings.dashboard else None,
            scripts=parts.stored_scripts,
            runner=parts.scripts,
        )
    )


def _entrance(parts: Parts, address: str) -> Invite:
    """Requests come over the private socket, so they come from the user who runs the gateway."""
    # Loaded only here: commands without a dashboard do not need its pages.
    from mcp_optimizer.app.dashboard import own_host
    from mcp_optimizer.dashboard.reception import ENTRANCE
    from mcp_optimizer.dashboard.sign_ins import SignIns

    sign_ins = SignIns(parts.storage.sign_ins, breaker=parts.storage.breaker)
    outside = parts.settings.public_url or address.removesuffix("/mcp")
    reached = urlsplit(outside)
    own = own_host(parts, reached.hostname or "")

    async def entrance(*, by_address: bool) -> str:
        origin = outside if own is None or by_address else await own.origin(reached.port)
        return f"{origin}{ENTRANCE}?ticket={await sign_ins.ticket()}"

    return entrance


def control_listener(
    parts: Parts, life: Life, address: str, operations: Operations, clients: Callable[[], int] | None = None
) -> ControlListener:
    """The command socket of a serving gateway. `clients` counts those that share it on stdio."""
    answers = command_answers(parts, life, address, operations, clients)
    return ControlListener(answers.answer, __version__, lambda: life.is_ready)


def mcp_server(parts: Parts) -> Server[Any]:
    """The MCP server, for any transport."""
    # Loaded only here: a gateway of one command has none.
    from mcp_optimizer.serving.server import build_server

    serving, options = parts.for_clients, server_options(parts.settings)
    return build_server(
        parts.gateway,
        __version__,
        serving.relay,
        options,
        parts.refresher,
        parts.accounts,
        serving.gate,
        parts.scripts,
        parts.signposts,
        serving.extensions,
    )


def http_app(
    parts: Parts, life: Life, costs: Costs, host: str, reloading: Reloading | None = None
) -> tuple[ASGIApp, Dashboard | None]:
    """/mcp, /health, /ready, and, if the settings want it, the dashboard."""
    from mcp_optimizer.access.callers.door import Door
    from mcp_optimizer.domain.addresses import is_loopback
    from mcp_optimizer.serving.http import StepUp, admitted_hosts, build_http_app
    from mcp_optimizer.serving.session_ids import EndedSessions

    settings = parts.settings
    is_for_all = is_open(settings, is_loopback=is_loopback(host))
    hosts, origins = items(settings.allowed_hosts), items(settings.allowed_origins)
    if (not is_loopback(host) or hosts) and not settings.public_url:
        _check_audiences(parts.credentials.issuers)
    dashboard: Dashboard | None = None
    routes: Sequence[Route] = ()
    if settings.dashboard:
        from mcp_optimizer.app.dashboard import build_dashboard

        dashboard, routes = build_dashboard(parts, life, costs, host, admitted_hosts(hosts, origins), reloading)
    stored = parts.storage.gateways if settings.database_place is not None else None
    ended = EndedSessions(stored, parts.storage.breaker)
    parts.announcements.listen(ChangeKind.ENDED, ended.told)
    app = build_http_app(
        mcp_server(parts),
        parts.catalog,
        host=host,
        allowed_hosts=hosts,
        allowed_origins=origins,
        version=__version__,
        is_ready=lambda: life.is_ready,
        requests=life.requests,
        worker=worker_name(os.environ),
        gate=parts.for_clients.gate,
        signatures=parts.storage.signatures,
        forwarding=parts.neighbours.forwarding() if parts.neighbours is not None else None,
        ended=ended,
        door=Door(
            parts.credentials,
            is_open=is_for_all,
            public_url=settings.public_url,
            needed_scopes=StepUp(parts.gateway, parts.credentials.scopes_for, transparent=is_transparent(settings)),
            denied=parts.trail.refused if parts.trail is not None else None,
            verified=partial(_token_seen, parts),
        ),
        routes=routes,
    )
    return app, dashboard


def _token_seen(parts: Parts, principal: Principal, token: str) -> None:
    """Keep a caller's token for a while, if an entry exchanges it."""
    if any(spec.auth.exchange for spec in parts.pool.by_caller):
        parts.logins.exchanges.note(principal, token)


def _check_audiences(issuers: Sequence[TokenIssuer]) -> None:
    """The audience of a token never comes from a client's Host header, which can name another host."""
    for issuer in issuers:
        if not issuer.audience:
            raise ConfigurationError(
                f"Other machines can reach this gateway, and the audience of tokens of {issuer.name} is unknown: set "
                "public_url to the address that clients use, or `audience` of the issuer."
            )
