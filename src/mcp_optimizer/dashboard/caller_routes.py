"""Callers on the dashboard: who may call, who did, and forms that make and revoke keys.

Built by the composition root; `guard` decides who may see it, and who may send its forms.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.callers.keys import Wanted
from mcp_optimizer.callers.making import make_key
from mcp_optimizer.dashboard.acts import Acts
from mcp_optimizer.dashboard.caller_pages import MOST_SHOWN, PATH, CallersPage, callers_page, new_key_page
from mcp_optimizer.dashboard.fields import named
from mcp_optimizer.dashboard.forms import form_of
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.own_host import listening_at
from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.domain.principal import Risk, Role
from mcp_optimizer.domain.token_issuers import TokenIssuer
from mcp_optimizer.errors import CatalogError, ConfigurationError, listed

if TYPE_CHECKING:
    from mcp_optimizer.db.api_keys import StoredKeys
    from mcp_optimizer.db.audit import ActiveCaller, StoredAudit

_DAY = 86_400
_MOST_READ = 50_000
"""Rows of the audit that are summed up."""

_MOST_CALLERS = 100
_ID = re.compile(r"[a-z0-9]{1,32}")
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class CallerSources:
    """The parts that the pages of callers use."""

    keys: Callable[[], Awaitable[StoredKeys | None]]
    audit: Callable[[], Awaitable[StoredAudit | None]]
    issuers: Sequence[TokenIssuer]
    servers: Callable[[], Sequence[str]]
    acts: Acts
    public_url: str
    version: str


class CallerRoutes:
    """Responds with pages, and makes and revokes keys."""

    def __init__(self, sources: CallerSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        page, action = self._guard.private, self._guard.action
        return [
            Route(PATH, page(self._all), methods=["GET"]),
            Route(f"{PATH}/new", action(self._make), methods=["POST"]),
            Route(f"{PATH}/revoke", action(self._revoke), methods=["POST"]),
            # Somebody opens again the address of a page that a form led to.
            Route(f"{PATH}/{{rest:path}}", page(_back_to_all), methods=["GET"]),
        ]

    async def _all(self, request: Request) -> Response:
        return await self._page(request)

    async def _page(
        self, request: Request, problem: str = "", entered: Mapping[str, str] | None = None, status: int = 200
    ) -> Response:
        sources, now_ms = self._sources, time.time_ns() // 1_000_000
        try:
            stored = await sources.keys()
            keys = None if stored is None else await stored.latest(MOST_SHOWN + 1, now_ms)
            active = await self._active(now_ms / 1_000)
        except CatalogError:
            keys, active, problem = None, [], problem or _NO_ANSWER
        values = CallersPage(
            sources.version,
            visitor_of(request),
            now_ms,
            keys,
            sources.issuers,
            active,
            sorted(sources.servers()),
            entered or {},
            problem,
        )
        return HTMLResponse(callers_page(values), status_code=status)

    async def _active(self, now: float) -> list[ActiveCaller]:
        audit = await self._sources.audit()
        return [] if audit is None else await audit.active_callers(now - _DAY, _MOST_READ, _MOST_CALLERS)

    async def _make(self, request: Request) -> Response:
        sources, visitor = self._sources, visitor_of(request)
        fields = await form_of(request)
        if fields is None:
            return await self._page(request, "The form is too large.", status=413)
        try:
            stored = await sources.keys()
            if stored is None:
                raise ConfigurationError("Keys are kept in the catalog database, which is not open.")
            wanted = _wanted(fields)
            key, text = await make_key(stored, wanted)
        except ConfigurationError as problem:
            return await self._page(request, str(problem), fields, 400)
        except CatalogError:
            return await self._page(request, _NO_ANSWER, fields, 503)
        sources.acts.record(visitor, "key/create", tool=key.name)
        unknown = sorted((key.servers or frozenset()) - set(sources.servers()))
        note = f"No server is called {listed([named(one, 40) for one in unknown])} yet." if unknown else ""
        page = new_key_page(key, text, self._address(request), note, sources.version, visitor)
        return HTMLResponse(page)

    async def _revoke(self, request: Request) -> Response:
        fields = await form_of(request) or {}
        key_id = fields.get("id", "")
        try:
            stored = await self._sources.keys() if _ID.fullmatch(key_id) else None
            name = None if stored is None else await stored.revoke_id(key_id, time.time_ns() // 1_000_000)
        except CatalogError:
            return await self._page(request, _NO_ANSWER, status=503)
        if name is None:
            told = "There is no valid key with this id. It may have just been revoked."
            return await self._page(request, told, status=404)
        self._sources.acts.record(visitor_of(request), "key/revoke", tool=name)
        return await _back_to_all(request)

    def _address(self, request: Request) -> str:
        """Where clients reach the gateway, as far as it knows."""
        if self._sources.public_url:
            return f"{self._sources.public_url}/mcp"
        if self._guard.reception.is_at_own_name(request):
            return f"{listening_at(request)}/mcp"
        return f"{request.scope.get('scheme', 'http')}://{named(request.headers.get('host', ''))}/mcp"


def _wanted(fields: Mapping[str, str]) -> Wanted:
    """The key that a form asks for; raises ConfigurationError."""
    servers = [part.strip() for part in fields.get("servers", "").split(",") if part.strip()]
    try:
        risk, role = Risk(fields.get("risk", "read")), Role(fields.get("role", "none"))
    except ValueError:
        raise ConfigurationError("The form has a value that it does not offer.") from None
    return Wanted(fields.get("name", "").strip(), servers or None, risk, role, expires=fields.get("expires", "90d"))


async def _back_to_all(_request: Request) -> Response:
    return RedirectResponse(PATH, status_code=303)
