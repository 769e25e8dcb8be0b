"""The page of logins to servers, the forms that start and end one, and the return from the authorization server.

Built by the composition root; `guard` refuses other sites, and visitors who may only see. No page is ever given a
token.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec
from mcp_optimizer.dashboard.guard import OWN_PAGE, Guard, sent_parts
from mcp_optimizer.dashboard.html import Child, Html, el
from mcp_optimizer.dashboard.page_parts import frame, moment, state_mark
from mcp_optimizer.dashboard.sign_ins import listening_at
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Principal, Role
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.login import LoginStatus
from mcp_optimizer.identity.logins import Logins, by_name, wants_login, why_no_login
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.terminal_text import span
from mcp_optimizer.upstream.state import UpstreamState

PATH = "/logins"
_WAITING = ("login needed", "more permissions needed")
_CLOSE = "You can close this page. The dashboard is where you left it."
_ANY = "the server's default"


@dataclass(frozen=True)
class LoginRow:
    """A server that may need a login."""

    login: LoginStatus
    is_asked: bool = False
    """The server waits for a login."""
    is_account: bool = False
    """The gateway has its own account there; no person logs in or out."""


@dataclass(frozen=True)
class BegunLogin:
    """A login that has begun, for the person who is about to leave for the authorization server."""

    server: str
    issuer: str
    address: str
    scopes: Sequence[str]
    returns_to: str
    leads_by: str = ""
    """An address that the browser visits on its way, if it returns under another name than it started from."""


def logins_page(
    rows: Sequence[LoginRow], now: float, version: str, visitor: Visitor | None = None, *, has_own: bool = False
) -> str:
    """`has_own`: at some servers each caller has a login of its own, on another page."""
    lead = "Servers that may want a login. The gateway keeps each login sealed, and refreshes it by itself."
    nothing = el("p", "No server of the server file can want a login.", class_="empty")
    can_manage = visitor is None or visitor.can_manage
    shown = el("ul", [_row(row, now, can_manage) for row in rows], class_="logins") if rows else nothing
    link = el("p", el("a", "Your own logins", href=OWN_PAGE), " are at the servers that act as each caller.")
    body = el("h1", "Logins"), el("p", lead, class_="lead"), shown, link if has_own else None
    return frame("Logins", *body, current=PATH, version=version, visitor=visitor)


def own_logins_page(rows: Sequence[LoginRow], now: float, version: str, visitor: Visitor) -> str:
    """A caller's page: the logins that this caller has made, and that nobody else uses."""
    lead = f"Servers that act as you, {visitor.principal.name}. Nobody else uses your logins or sees what they lead to."
    nothing = el("p", "No server of this gateway acts as each caller.", class_="empty")
    shown = el("ul", [_row(row, now, True, OWN_PAGE) for row in rows], class_="logins") if rows else nothing
    body = el("h1", "Your logins"), el("p", lead, class_="lead"), shown
    is_closed = not visitor.principal.role.covers(Role.SEE)
    return frame("Your logins", *body, version=version, visitor=visitor, is_closed=is_closed)


def _row(row: LoginRow, now: float, can_manage: bool, path: str = PATH) -> Html:
    login = row.login
    return el(
        "li",
        el("div", el("h2", login.server), state_mark(_state(row)), class_="title"),
        facts(_facts(row, now)),
        None if row.is_account or not can_manage else el("div", _buttons(row, path), class_="actions"),
    )


def _state(row: LoginRow) -> str:
    if row.login.state != "none":
        return row.login.state
    return "login needed" if row.is_asked else "not logged in"


def _facts(row: LoginRow, now: float) -> list[tuple[str, Child]]:
    login = row.login
    found: list[tuple[str, Child]] = []
    if row.is_account:
        found.append(("Account", "the gateway's own account; no login needed"))
    if login.issuer:
        found += [("Issuer", login.issuer), ("Permissions", permissions(login.scopes))]
    if login.wanted:
        found.append(("Missing", [permissions(login.wanted), " (a call needed more; log in again to give them)"]))
    if login.expires_at is not None:
        left = login.expires_at - now
        when = f"in {span(left)}" if left > 0 else f"{span(-left)} ago"
        found.append(("Expires" if left > 0 else "Expired", [_time(login.expires_at, when), f"; {_renewal(row)}"]))
    if login.refreshed_at is not None:
        found.append(("Last refresh", _time(login.refreshed_at, f"{span(max(0.0, now - login.refreshed_at))} ago")))
    if login.error:
        found.append(("Last error", el("span", login.error, class_="bad")))
    return found


def _renewal(row: LoginRow) -> str:
    if row.login.state == "login needed":
        return "only a new login helps"
    return "refreshed by itself" if row.login.can_refresh or row.is_account else "cannot be refreshed"


def facts(found: Sequence[tuple[str, Child]]) -> Html | None:
    return el("dl", [[el("dt", name), el("dd", value)] for name, value in found], class_="facts") if found else None


def permissions(scopes: Sequence[str]) -> Child:
    return [[", " if at else None, el("code", scope)] for at, scope in enumerate(scopes)] or _ANY


def _time(at: float, text: str) -> Html:
    return el("time", text, datetime=moment(at), title=f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC")


def _buttons(row: LoginRow, path: str) -> list[Html]:
    is_in, to = row.login.state != "none", f"{path}/{quote(row.login.server, safe='')}"
    log_in = _button("Log in again" if is_in else "Log in", row.login.server, to, is_main=_state(row) in _WAITING)
    return [log_in, _button("Log out", row.login.server, f"{to}/out")] if is_in else [log_in]


def _button(label: str, server: str, action: str, *, is_main: bool = False) -> Html:
    # Several buttons have this label; a visitor with a screen reader also needs the server's name.
    button = el("button", label, el("span", f" – {server}", class_="unseen"), class_="main" if is_main else None)
    return el("form", button, action=action, method="post")


def question_page(asked: BegunLogin, version: str) -> str:
    """A page with the continuation of the login as a link: the form that began it may not lead to another site."""
    host, title = urlsplit(asked.address).netloc, f"Log in to {asked.server}"
    told: list[tuple[str, Child]] = [
        ("Server", asked.server),
        ("Permissions", permissions(asked.scopes)),
        ("Opens", host),
        ("Returns to", asked.returns_to),
    ]
    go_on = el("a", f"Continue to {asked.issuer}", href=asked.leads_by or asked.address, rel="noreferrer",
               target="_blank" if asked.leads_by else None, class_="button main")  # fmt: skip
    cancel = el("a", "All logins" if asked.leads_by else "Cancel", href=PATH)
    return frame(
        title,
        el("h1", title),
        el("p", "You log in at the issuer, which sends your browser back here. The gateway never sees your password.",
           class_="lead"),
        facts(told),
        el("p", go_on, " ", cancel, class_="actions"),
        current=PATH,
        version=version,
    )  # fmt: skip


def outcome_page(title: str, text: str, version: str, *, is_elsewhere: bool = False) -> str:
    """`is_elsewhere`: the browser is signed in under another name, and its original page is still open there."""
    told = el("p", text, class_="lead")
    if is_elsewhere:
        return frame(title, el("h1", title), told, el("p", _CLOSE), is_closed=True)
    link = el("a", "All logins", href=PATH)
    return frame(title, el("h1", title), told, el("p", link), current=PATH, version=version)


CALLBACK = f"{PATH}/callback"
"""The address to which browsers return; appended to the gateway's public address."""

SET_OUT = f"{PATH}/set-out"
"""Visited by browsers on their way to an issuer, if they return under another name than they started from."""

_PURPOSE = "the way to an issuer"
COOKIE = "mcp-optimizer-login"
_LOGIN_SECONDS = 900
"""Seconds that a person has to log in."""

_HOST_HEADER = regex(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""A Host header that is safe in an address: the guard compares only its beginning with an entry such as host:*."""


@dataclass(frozen=True)
class LoginSources:
    """The parts that the login pages use."""

    logins: Logins
    servers: Callable[[], Sequence[UpstreamState]]
    by_caller: Callable[[], Sequence[ServerSpec]]
    """The servers at which each caller has a login of its own."""
    public_url: str
    """The address at which browsers reach the gateway; empty: that of the current request."""
    signatures: Signatures
    version: str


class LoginPages:
    """Responds with pages, and starts and ends logins."""

    def __init__(self, sources: LoginSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        guard = self._guard
        return [
            Route(PATH, guard.private(self._all), methods=["GET"]),
            Route(SET_OUT, guard.returning(self._set_out), methods=["GET"]),
            Route(CALLBACK, guard.returning(self._come_back), methods=["GET"]),
            Route(f"{PATH}/{{rest:path}}", guard.action(self._act), methods=["POST"]),
            # For visitors who reopen the address of a form's response.
            Route(f"{PATH}/{{rest:path}}", guard.private(partial(_back_to, PATH)), methods=["GET"]),
            Route(OWN_PAGE, guard.own(self._own), methods=["GET"]),
            Route(f"{OWN_PAGE}/{{rest:path}}", guard.own(self._act_as_caller, is_change=True), methods=["POST"]),
            Route(f"{OWN_PAGE}/{{rest:path}}", guard.own(partial(_back_to, OWN_PAGE)), methods=["GET"]),
        ]

    async def _all(self, request: Request) -> Response:
        own = {spec.name for spec in self._sources.by_caller()}
        states = {state.spec.name: state for state in self._sources.servers() if state.spec.name not in own}
        found = await self._sources.logins.statuses(state.spec for state in states.values())
        rows = [
            LoginRow(
                login,
                states[login.server].status is ServerStatus.LOGIN_NEEDED,
                states[login.server].spec.auth.kind is AuthKind.CLIENT_CREDENTIALS,
            )
            for login in found
        ]
        page = logins_page(rows, time.time(), self._sources.version, visitor_of(request), has_own=bool(own))
        return HTMLResponse(page)

    async def _own(self, request: Request) -> Response:
        visitor = visitor_of(request)
        found = await self._sources.logins.statuses(self._sources.by_caller(), visitor.principal)
        page = own_logins_page([LoginRow(one) for one in found], time.time(), self._sources.version, visitor)
        return HTMLResponse(page)

    async def _act_as_caller(self, request: Request) -> Response:
        """`/mine/SERVER` logs in as the person who is signed in here, `/mine/SERVER/out` logs out."""
        name, *action = sent_parts(request, OWN_PAGE)
        if action not in ([], ["out"]):
            return self._outcome("Not found", "There is no such page.", 404)
        try:
            spec = by_name(self._sources.by_caller(), name)
        except ConfigurationError as unknown:
            return self._outcome("No such server", str(unknown), 404)
        return await (self._log_out if action else self._log_in)(spec, request, visitor_of(request).principal)

    async def _act(self, request: Request) -> Response:
        """`/logins/SERVER` logs in, `/logins/SERVER/out` logs out."""
        name, *action = sent_parts(request, PATH)
        if action not in ([], ["out"]):
            return self._outcome("Not found", "There is no such page.", 404)
        try:
            spec = by_name((state.spec for state in self._sources.servers()), name)
        except ConfigurationError as unknown:
            return self._outcome("No such server", str(unknown), 404)
        return await (self._log_out if action else self._log_in)(spec, request)

    async def _log_in(self, spec: ServerSpec, request: Request, principal: Principal = LOCAL_PRINCIPAL) -> Response:
        title = f"Cannot log in to {spec.name}"
        try:
            returns_to = self._returns_to(request)
            attempt = await self._sources.logins.begin(spec, returns_to, principal=principal)
        except ConfigurationError as problem:
            return self._outcome(title, str(problem), 400)
        except OptimizerError as failure:
            return self._outcome(title, f"{_sentence(failure)} You can try again.", 502)
        mark, leads_by = _mark(attempt.state), ""
        if self._guard.reception.is_at_own_name(request):
            leads_by = await self._leads_by(returns_to, mark, attempt.address)
        asked = BegunLogin(spec.name, attempt.provider.issuer, attempt.address, attempt.scopes, returns_to, leads_by)
        response = HTMLResponse(question_page(asked, self._sources.version))
        return response if leads_by else _marked(response, mark, is_secure=returns_to.startswith("https://"))

    async def _leads_by(self, returns_to: str, mark: str, address: str) -> str:
        """The address through which the browser passes: a cookie for the name of its return can only be set there."""
        signature = await self._sources.signatures.sign(_PURPOSE, f"{mark} {address}")
        query = urlencode({"mark": mark, "to": address, "signature": signature})
        return f"{returns_to.removesuffix(CALLBACK)}{SET_OUT}?{query}"

    async def _set_out(self, request: Request) -> Response:
        mark, address, signature = (request.query_params.get(name, "") for name in ("mark", "to", "signature"))
        if not await self._sources.signatures.is_ours(_PURPOSE, f"{mark} {address}", signature):
            return self._outcome("Not logged in", "This link is not one of this gateway. You can begin again.", 400)
        # Only names under .localhost are used for the return, and none of them has a certificate.
        return _marked(RedirectResponse(address, status_code=303), mark, is_secure=False)

    async def _log_out(self, spec: ServerSpec, request: Request, principal: Principal = LOCAL_PRINCIPAL) -> Response:
        if not wants_login(spec):
            return self._outcome(f"Cannot log out of {spec.name}", why_no_login(spec), 400)
        try:
            await self._sources.logins.log_out(spec, principal)
        except OptimizerError as failure:
            return self._outcome(f"Cannot log out of {spec.name}", _sentence(failure), 502)
        return await _back_to(PATH if principal is LOCAL_PRINCIPAL else OWN_PAGE, request)

    async def _come_back(self, request: Request) -> Response:
        outcome = partial(self._outcome, is_elsewhere=self._guard.reception.is_elsewhere(request))
        state = request.query_params.get("state", "")
        if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), _mark(state).encode()):
            told = "This browser did not begin the login, or began another one since. You can begin again."
            return outcome("Not logged in", told, 400)
        try:
            redirect = f"{CALLBACK}?{request.scope['query_string'].decode('latin-1')}"
            specs = (state.spec for state in self._sources.servers())
            server = await self._sources.logins.finish(redirect, specs=specs)
        except OptimizerError as failure:
            return outcome("Not logged in", f"{_sentence(failure)} You can begin again.", 400)
        return outcome("Logged in", f"You are logged in to {server}, which starts by itself now.", 200)

    def _returns_to(self, request: Request) -> str:
        """Never the name reserved for sign-ins: the issuer learns this address, and anyone may run the issuer."""
        if self._sources.public_url:
            return f"{self._sources.public_url}{CALLBACK}"
        if self._guard.reception.is_at_own_name(request):
            return f"{listening_at(request)}{CALLBACK}"
        host = request.headers.get("host", "")
        if not _HOST_HEADER.fullmatch(host):
            raise ConfigurationError("The address of this page cannot be used to come back to; set public_url.")
        return f"{request.scope['scheme']}://{host}{CALLBACK}"

    def _outcome(self, title: str, text: str, status: int, *, is_elsewhere: bool = False) -> Response:
        page = outcome_page(title, text, self._sources.version, is_elsewhere=is_elsewhere)
        return HTMLResponse(page, status_code=status)


def _marked(response: Response, mark: str, *, is_secure: bool) -> Response:
    """Binds the login to this browser: opening the link in another browser logs in to nothing."""
    response.set_cookie(
        COOKIE,
        mark,
        max_age=_LOGIN_SECONDS,
        path=CALLBACK,
        httponly=True,
        samesite="lax",
        secure=is_secure,
    )
    return response


def _mark(state: str) -> str:
    """The browser's mark of an attempt: not the state itself, which its page must not show."""
    return hashlib.sha256(f"began {state}".encode()).hexdigest()


async def _back_to(page: str, _request: Request) -> Response:
    return RedirectResponse(page, status_code=303)


def _sentence(failure: OptimizerError) -> str:
    text = str(failure).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
