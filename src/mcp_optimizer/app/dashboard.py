"""The dashboard with everything it reads and changes, behind one guard. Built with the HTTP application."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer import __version__
from mcp_optimizer.app.costs import Costs
from mcp_optimizer.app.life import Life
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.dashboard.audit_pages import AuditRoutes, AuditSources
from mcp_optimizer.dashboard.caller_pages import CallerRoutes, CallerSources
from mcp_optimizer.dashboard.guard import OWN_PAGE, Guard
from mcp_optimizer.dashboard.login_pages import CALLBACK, LoginPages, LoginSources
from mcp_optimizer.dashboard.overview_routes import Dashboard, DashboardSources, metrics_route
from mcp_optimizer.dashboard.reception import Entrance, Reception
from mcp_optimizer.dashboard.rule_pages import RuleRoutes, RuleSources
from mcp_optimizer.dashboard.server_routes import FileChanges, ServerRoutes, ServerSources
from mcp_optimizer.dashboard.settings_page import SettingsRoute
from mcp_optimizer.dashboard.sign_ins import SignInHost, SignIns
from mcp_optimizer.dashboard.signing_in import SignInForms
from mcp_optimizer.dashboard.trial_pages import TrialRoutes, TrialSources
from mcp_optimizer.dashboard.trust_pages import TrustRoutes, TrustSources
from mcp_optimizer.dashboard.visitor import ActRecorder
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.metrics.prometheus import GatewayName, LoadGauges, Meters, ProcessLoad
from mcp_optimizer.runtime.worker_place import listening_since, worker_name

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.routing import Route

    from mcp_optimizer.app.reloading import Reloading
    from mcp_optimizer.identity.secrets import Secrets


def build_dashboard(
    parts: Parts,
    life: Life,
    costs: Costs,
    host: str,
    admitted: TransportSecuritySettings,
    reloading: Reloading | None = None,
) -> tuple[Dashboard, Sequence[Route]]:
    """The pages with their paths. `reloading` applies changes of the server file."""
    guard = _guard(parts, host, admitted)
    changes = _changes(parts, reloading)
    trials = TrialRoutes(TrialSources(parts.gateway, changes is not None, __version__), guard)
    dashboard = Dashboard(_sources(parts, costs, trials), guard)
    return dashboard, [
        *dashboard.routes(),
        *trials.routes(),
        *_servers(parts, guard, changes, reloading).routes(),
        *SignInForms(guard).routes(),
        *_company_sign_ins(parts, guard),
        *SettingsRoute(parts.settings, __version__, guard).routes(),
        *_login_pages(parts, guard).routes(),
        *_sharing(parts, guard),
        metrics_route(_meters(parts, life, costs), guard),
    ]


def _guard(parts: Parts, host: str, admitted: TransportSecuritySettings) -> Guard:
    settings, trail = parts.settings, parts.trail
    needs_key = bool(settings.dashboard_token or settings.require_auth)
    own = own_host(parts, host)
    entrance = Entrance(
        is_loopback(host) and not needs_key,
        settings.dashboard_token,
        settings.public_url,
        own,
        lambda: any(spec.auth.per_caller and spec.auth.exchange is None for spec in parts.pool.by_caller),
    )
    note_wrong = partial(trail.refused, 401, "dashboard") if trail is not None else lambda: None
    is_local = is_loopback(host) and not settings.public_url
    since = listening_since(os.environ) if is_local else 0.0
    sign_ins = SignIns(parts.storage.sign_ins, breaker=parts.storage.breaker, since=since)
    return Guard(admitted, Reception(entrance, parts.credentials, sign_ins), note_wrong)


def own_host(parts: Parts, host: str) -> SignInHost | None:
    """The host name reserved for sign-ins, if any program may listen on this host and no name was configured."""
    is_wanted = is_loopback(host) and not parts.settings.public_url
    return SignInHost(parts.storage.signatures, parts.local_names) if is_wanted else None


def _company_sign_ins(parts: Parts, guard: Guard) -> list[Route]:
    """The addresses for signing in with a token issuer, where the settings name one for that."""
    if (sign_ins := parts.credentials.sign_ins) is None:
        return []
    from mcp_optimizer.dashboard.signing_in import CompanySignInRoutes

    return CompanySignInRoutes(guard, sign_ins, parts.trail).routes()


def _changes(parts: Parts, reloading: Reloading | None) -> FileChanges | None:
    """The server file, if the dashboard may change it."""
    settings = parts.settings
    if reloading is None or settings.demo or not settings.dashboard_changes:
        return None
    return FileChanges(settings.server_file, reloading.reload)


def _servers(parts: Parts, guard: Guard, changes: FileChanges | None, reloading: Reloading | None) -> ServerRoutes:
    place = parts.settings.database_place
    sources = ServerSources(
        states=parts.pool.states,
        log=parts.pool.log,
        restart=parts.pool.restart,
        snapshot=lambda: parts.catalog.snapshot,
        logins=parts.logins,
        changes=changes,
        broken=lambda: reloading.problem if reloading is not None else "",
        secrets=partial(_secrets, place, parts) if place is not None else None,
        acts=ActRecorder(parts.trail),
        version=__version__,
    )
    return ServerRoutes(sources, guard)


def _secrets(place: Path | str, parts: Parts) -> Secrets:
    # Loaded only here: cryptography takes a moment.
    from mcp_optimizer.identity.secrets import Secrets
    from mcp_optimizer.identity.vault import Vault, keys_of

    return Secrets(Vault(parts.storage.secrets, keys_of(place, os.environ)))


def _sources(parts: Parts, costs: Costs, trials: TrialRoutes) -> DashboardSources:
    return DashboardSources(
        gateway=parts.gateway,
        forms=parts.forms,
        recorder=parts.recorder,
        history=parts.storage.history,
        usage=costs.usage,
        find=costs.of_search,
        own_tokens=lambda: costs.own_tokens,
        trial=trials.section,
        version=__version__,
        which=_name().shown,
    )


def _login_pages(parts: Parts, guard: Guard) -> LoginPages:
    address, logins = parts.settings.public_url, parts.logins
    if address:
        logins.come_back_to(f"{address}{CALLBACK}", f"{address}{OWN_PAGE}")
    sources = LoginSources(
        logins, parts.pool.states, lambda: parts.pool.by_caller, address, parts.storage.signatures, __version__
    )
    return LoginPages(sources, guard)


def _sharing(parts: Parts, guard: Guard) -> list[Route]:
    """Callers, rules, trust and the audit."""
    storage, catalog, acts = parts.storage, parts.catalog, ActRecorder(parts.trail)
    callers = CallerSources(
        keys=storage.api_keys,
        audit=storage.audit,
        issuers=parts.credentials.issuers,
        groups=parts.credentials.groups_of,
        servers=lambda: list(catalog.snapshot.states),
        acts=acts,
        public_url=parts.settings.public_url,
        version=__version__,
    )
    return [
        *CallerRoutes(callers, guard).routes(),
        *RuleRoutes(RuleSources(parts.policy, lambda: catalog.snapshot, storage.api_keys, __version__), guard).routes(),
        *TrustRoutes(TrustSources(parts.keeper, acts, __version__), guard).routes(),
        *AuditRoutes(AuditSources(storage.audit, parts.trail is not None, __version__), guard).routes(),
    ]


def _meters(parts: Parts, life: Life, costs: Costs) -> Meters:
    recorder, gate = parts.recorder, parts.for_clients.gate

    def load() -> ProcessLoad:
        admissions, requests = parts.pool.admissions(), life.requests
        calls = sum(one.under_way for one in admissions)
        waiting = sum(one.waiting for one in admissions)
        return ProcessLoad(len(requests), calls, waiting, requests.sessions, life.lag.longest, life.is_ready)

    gauges = LoadGauges(load, _name())
    meters = Meters(lambda: parts.catalog.snapshot, recorder, lambda: costs.assumptions, lambda: gate.refused, gauges)
    recorder.listen(meters.take)
    return meters


def _name() -> GatewayName:
    return GatewayName(socket.gethostname(), os.getpid(), worker_name(os.environ), __version__)
