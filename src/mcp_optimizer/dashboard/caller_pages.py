"""The callers page: who may call, who did, and forms that make and revoke keys.

Built by the composition root; `guard` decides who may see it and who may submit its forms. Only the page for a new key
shows the text of a key.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.access.callers.keys import LONGEST_NAME as LONGEST_KEY_NAME
from mcp_optimizer.access.callers.keys import Wanted, make_key
from mcp_optimizer.dashboard.guard import Guard, form_of
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.page_parts import (
    ago,
    choice,
    confirmed,
    frame,
    hidden,
    named,
    section,
    state_mark,
    table,
    text_field,
    word,
)
from mcp_optimizer.dashboard.sign_ins import listening_at
from mcp_optimizer.dashboard.visitor import ActRecorder, Visitor, visitor_of
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.domain.credentials import ApiKey, TokenIssuer
from mcp_optimizer.errors import CatalogError, ConfigurationError, listed
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    from mcp_optimizer.db.audit import ActiveCaller, StoredAudit
    from mcp_optimizer.db.credentials import StoredKeys

PATH = "/callers"
MOST_SHOWN = 500
_MOST_NAMES = 8
_RISKS = (
    (Risk.READ.value, "tools that only read"),
    (Risk.WRITE.value, "tools that read or write"),
    (Risk.DESTRUCTIVE.value, "every tool"),
)
_ROLES = (
    (Role.NONE.value, "nothing"),
    (Role.SEE.value, "see everything"),
    (Role.MANAGE.value, "see and manage everything"),
)
_EXPIRIES = (("1d", "a day"), ("30d", "30 days"), ("90d", "90 days"), ("52w", "a year"), ("never", "for ever"))


@dataclass(frozen=True)
class CallersPage:
    """The callers that may call and those that did."""

    version: str
    visitor: Visitor
    now_ms: int
    keys: Sequence[ApiKey] | None
    """None if there is no database for keys."""
    issuers: Sequence[TokenIssuer] = ()
    active: Sequence[ActiveCaller] = ()
    groups: Callable[[str], frozenset[str]] = lambda _: frozenset()
    servers: Sequence[str] = ()
    entered: Mapping[str, str] = field(default_factory=dict)
    """The form's values, if they contain a mistake."""
    problem: str = ""


def callers_page(values: CallersPage) -> str:
    lead = "Who may call over HTTP, and who did. A key is shown once, when it is made; only a hash of it is kept."
    return frame(
        "Callers",
        el("h1", "Callers"),
        el("p", lead, class_="lead"),
        el("p", values.problem, class_="bad", role="alert") if values.problem else None,
        _keys(values),
        _new_key(values) if values.keys is not None and values.visitor.can_manage else None,
        _issuers(values.issuers),
        _active(values),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def _keys(values: CallersPage) -> Html:
    if values.keys is None:
        told = "Keys are kept in the catalog database, and there is none (--database none), or it cannot be opened now."
        return section("Keys", el("p", told, class_="empty"))
    if not values.keys:
        return section("Keys", el("p", "There are no keys yet.", class_="empty"))
    can_manage = values.visitor.can_manage
    titles = ("name", "state", "servers", "risk", "role", "expires", "last used", *([""] if can_manage else []))
    rows = [_key(key, values) for key in values.keys[:MOST_SHOWN]]
    more = "There are more: mcp-optimizer key list shows all." if len(values.keys) > MOST_SHOWN else None
    return section("Keys", table(titles, rows, "Keys", "stack"), note=more)


def _key(key: ApiKey, values: CallersPage) -> tuple[Child, ...]:
    state = key.state(values.now_ms)
    servers = "all" if key.servers is None else listed([named(one, 40) for one in sorted(key.servers)], _MOST_NAMES)
    expires = ago(key.expires_at_ms, values.now_ms)
    cells = (
        [el("strong", named(key.name)), el("div", f"of {named(key.holder)}", class_="note") if key.holder else None],
        [state_mark(state), el("span", " replaced", class_="note") if key.replaced_at_ms is not None else None],
        servers,
        word(key.risk.value),
        word(key.role.value),
        expires,
        ago(key.used_at_ms, values.now_ms),
    )
    if not values.visitor.can_manage:
        return cells
    question = "Requests with it are refused within two seconds. This cannot be undone."
    revoke = confirmed("Revoke", named(key.name), question, f"{PATH}/revoke", hidden("id", key.id))
    return (*cells, revoke if state == "in use" else None)


def _new_key(values: CallersPage) -> Html:
    entered = values.entered
    known = f"With commas; empty: all. {listed([named(one, 40) for one in values.servers], _MOST_NAMES)}"
    form = el(
        "form",
        text_field("Name", "name", entered.get("name", ""), "What people and rules call its holder.",
                   required=True, maxlength=LONGEST_KEY_NAME),
        text_field("Servers", "servers", entered.get("servers", ""), known, maxlength=20_000),
        choice("May call", "risk", _RISKS, entered.get("risk", Risk.READ.value)),
        choice("On this dashboard", "role", _ROLES, entered.get("role", Role.NONE.value)),
        choice("Lasts", "expires", _EXPIRIES, entered.get("expires", "90d")),
        el("p", el("button", "Make the key", class_="main")),
        action=f"{PATH}/new", method="post", class_="fields",
    )  # fmt: skip
    return section("Make a key", form)


def _issuers(issuers: Sequence[TokenIssuer]) -> Html | None:
    if not issuers:
        return None
    rows = [
        (
            el("strong", issuer.name),
            named(issuer.issuer, 200),
            [_scopes(issuer.required_scopes), _by_risk(issuer)],
            el("code", named(issuer.groups_claim, 60)) if issuer.groups_claim else "–",
        )
        for issuer in issuers
    ]
    return section(
        "Token issuers", table(("name", "issuer", "scopes", "claim of groups"), rows, "Issuers of tokens", "stack")
    )


def _by_risk(issuer: TokenIssuer) -> list[Html]:
    return [
        el("div", f"{risk.value}: ", _scopes(scopes)) for risk in Risk if (scopes := issuer.risk_scopes.get(risk, ()))
    ]


def _scopes(scopes: Sequence[str]) -> Child:
    return [[" " if at else None, el("code", named(scope, 60))] for at, scope in enumerate(scopes)]


def _active(values: CallersPage) -> Html:
    title = "Callers in the last 24 hours"
    if not values.active:
        return section(title, el("p", "The audit has no callers.", class_="empty"))
    rows = [
        (
            [el("a", named(one.caller) or "no caller", href=audit_href(caller=one.caller)) if one.caller
             else "no caller",
             el("span", f" of {named(one.tenant)}", class_="note") if one.tenant else None,
             _groups(values.groups(one.caller))],
            number(one.acts),
            number(one.refused),
            ago(one.last_at_ms, values.now_ms),
        )
        for one in values.active
    ]  # fmt: skip
    return section(title, table(("caller", "#acts", "#refused", "last"), rows, title, "stack"))


def _groups(groups: frozenset[str]) -> Html | None:
    """The groups that a caller's latest token named."""
    shown = listed([named(group, 60) for group in sorted(groups)], _MOST_NAMES)
    return el("div", f"groups: {shown}", class_="note") if groups else None


def audit_href(caller: str = "", tool: str = "", server: str = "") -> str:
    """The audit of exactly this caller or tool, whatever characters its name contains."""
    asked = {"caller": escape(caller), "tool": escape(tool), "server": server}
    return "/audit?" + urlencode({key: value for key, value in asked.items() if value}, errors="replace")


def new_key_page(key: ApiKey, text: str, address: str, note: str, version: str, visitor: Visitor) -> str:
    """The only page that ever shows a key."""
    return frame(
        "A new key",
        el("h1", named(key.name)),
        el("p", "This is the only time that the key is shown. Copy it now.", class_="lead"),
        el("pre", el("code", text), tabindex="0", id="key"),
        el("p", note, class_="bad") if note else None,
        section("How clients send it", el("pre", el("code", f"Authorization: Bearer {text}"), tabindex="0"),
                el("p", "to ", el("code", address), class_="note")),
        el("p", el("a", "I have copied it", href=PATH, class_="button main"), class_="actions"),
        current=PATH,
        version=version,
        visitor=visitor,
    )  # fmt: skip


_DAY = 86_400
_MOST_READ = 50_000
"""Audit rows that are summed up."""

_MOST_CALLERS = 100
_ID = regex(r"[a-z0-9]{1,32}")
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class CallerSources:
    """The parts that the callers pages use."""

    keys: Callable[[], Awaitable[StoredKeys | None]]
    audit: Callable[[], Awaitable[StoredAudit | None]]
    issuers: Sequence[TokenIssuer]
    groups: Callable[[str], frozenset[str]]
    servers: Callable[[], Sequence[str]]
    acts: ActRecorder
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
            # For visitors who reopen the address of a form's response.
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
            sources.groups,
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
        """The address at which clients reach the gateway, as far as it is known."""
        if self._sources.public_url:
            return f"{self._sources.public_url}/mcp"
        if self._guard.reception.is_at_own_name(request):
            return f"{listening_at(request)}/mcp"
        return f"{request.scope.get('scheme', 'http')}://{named(request.headers.get('host', ''))}/mcp"


def _wanted(fields: Mapping[str, str]) -> Wanted:
    """The key that a form requests; raises ConfigurationError."""
    servers = [part.strip() for part in fields.get("servers", "").split(",") if part.strip()]
    try:
        risk, role = Risk(fields.get("risk", "read")), Role(fields.get("role", "none"))
    except ValueError:
        raise ConfigurationError("The form has a value that it does not offer.") from None
    return Wanted(fields.get("name", "").strip(), servers or None, risk, role, expires=fields.get("expires", "90d"))


async def _back_to_all(_request: Request) -> Response:
    return RedirectResponse(PATH, status_code=303)
