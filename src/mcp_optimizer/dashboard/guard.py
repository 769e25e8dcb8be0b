"""Access control of the dashboard: Host and Origin, the visitor's role, and the reading of forms.

Also checks the Host and Origin of `/mcp`: otherwise a web page could point its own name to this machine and read
everything. Forms are read within limits. A request that is not admitted gets the sign-in page; no page in this module
receives a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, quote, unquote

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from mcp_optimizer.dashboard.html import Child, el
from mcp_optimizer.dashboard.page_parts import frame, message_page, named
from mcp_optimizer.dashboard.reception import NotAdmitted, Reception, no_role
from mcp_optimizer.dashboard.visitor import VISITOR_KEY, Visitor
from mcp_optimizer.domain.caller import Role


def sign_in_page(problem: str = "", *, takes_a_key: bool = True, companies: Mapping[str, str] | None = None) -> str:
    """`companies`: what people call the issuers at which they can sign in, by name."""
    own = [
        "On the machine of the gateway, ",
        el("code", "mcp-optimizer dashboard"),
        " opens this page signed in as its owner.",
    ]
    with_key = [
        "Elsewhere, give a key made with ",
        el("code", "mcp-optimizer key create --name NAME --role see"),
        " (or ",
        el("code", "manage"),
        "), or the dashboard token.",
    ]
    told = el("p", problem, class_="bad", role="alert") if problem else None
    lead: list[Child] = [el("p", own, class_="lead"), el("p", with_key, class_="lead") if takes_a_key else None]
    with_company = [
        el("a", f"Sign in with {named(title)}", href=f"{WITH_COMPANY}/{name}", class_="button main")
        for name, title in (companies or {}).items()
    ]
    return frame(
        "Sign in",
        el("h1", "Sign in"),
        told,
        el("p", with_company, class_="actions") if with_company else None,
        lead,
        _sign_in_form(is_main=not with_company) if takes_a_key else None,
        is_closed=True,
    )


def _sign_in_form(*, is_main: bool) -> Child:
    return el(
        "form",
        el("label", "Key or token", for_="token"),
        el("input", id="token", name="token", type="password", autocomplete="current-password", required=True,
           maxlength="1000"),
        el("button", "Sign in", type="submit", class_="main" if is_main else None),
        action="/login", method="post", class_="filter",
    )  # fmt: skip


WITH_COMPANY = "/login/with"
"""Where a sign-in with a token issuer begins, before its name."""


def led_page(address: str) -> str:
    """A page that forwards to the host that keeps the sign-in, because a form may not lead to another name."""
    return frame(
        "Signed in",
        el("h1", "Signing you in"),
        el("p", el("a", "Go on", href=address, rel="noreferrer"), " under a name that no other program knows.",
           class_="lead"),
        el("meta", http_equiv="refresh", content=f"0;url={address}"),
        is_closed=True,
    )  # fmt: skip


def entered_page() -> str:
    """A page that forwards by itself, because a browser sends its new cookie only from one of our own pages."""
    return frame(
        "Signed in",
        el("h1", "You are signed in"),
        el("p", el("a", "Go on to the dashboard", href="/"), class_="lead"),
        el("meta", http_equiv="refresh", content="0;url=/"),
        is_closed=True,
    )


_LARGEST_FORM = 65_536
_MOST_FIELDS = 200
_FORM_SECONDS = 10.0


async def form_of(request: Request, longest: int = _LARGEST_FORM) -> Mapping[str, str] | None:
    """The fields of a form, each once; None if it is larger or slower than any of our forms."""
    body = bytearray()
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > longest:
                    return None
    except TimeoutError:
        return None
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}


def sent_parts(request: Request, under: str) -> list[str]:
    """The path segments after `under`, as sent: a name may contain a slash, which is then encoded."""
    sent: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = sent.partition(b"?")[0].decode("ascii", "replace")
    return [unquote(part) for part in path.removeprefix(f"{under}/").split("/")]


Endpoint = Callable[[Request], Awaitable[Response]]

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: with that, browsers send our own forms with "Origin: null", which is refused.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OWN_SITE = ("same-origin", "none")
"""Accepted values of Sec-Fetch-Site: the request comes from one of our pages, or from no page at all."""

OWN_PAGE = "/mine"
"""The page of each caller."""

_WRONG_PAUSE = 0.5
_RETRY_AFTER = {429: 60, 503: 2}
_TITLES = {403: "Not permitted", 429: "Too many wrong tokens", 503: "Try again shortly"}
_NOT_FOR_ALL = "Anyone who reaches this page may look at savings and tools. Everything else needs a sign-in."


class Guard:
    """Admits requests to pages, or responds instead of them."""

    def __init__(
        self, hosts: TransportSecuritySettings, reception: Reception, note_wrong: Callable[[], None] = lambda: None
    ) -> None:
        """`note_wrong`: called for each invalid key or token."""
        self._hosts = TransportSecurityMiddleware(hosts)
        self._note_wrong = note_wrong
        self.reception = reception

    def page(self, endpoint: Endpoint) -> Endpoint:
        """For people, including anonymous visitors of an open dashboard, who see only figures and what an open gateway
        tells its callers anyway. Others get the sign-in form.
        """
        return self._guarded(endpoint, Role.SEE, for_people=True, for_anybody=True)

    def private(self, endpoint: Endpoint) -> Endpoint:
        """For people who are signed in, even if the dashboard is open."""
        return self._guarded(endpoint, Role.SEE, for_people=True)

    def data(self, endpoint: Endpoint) -> Endpoint:
        """For programs, without a credential if the dashboard is open; else with a key or the token as a bearer."""
        return self._guarded(endpoint, Role.SEE, for_people=False, for_anybody=True)

    def action(self, endpoint: Endpoint) -> Endpoint:
        """For forms on our own pages that change something: refused if they come from another site."""
        return self._guarded(endpoint, Role.MANAGE, for_people=True, is_change=True)

    def own(self, endpoint: Endpoint, *, is_change: bool = False) -> Endpoint:
        """For the page of each caller, whatever its role: about nothing but what is the caller's own."""
        return self._guarded(endpoint, Role.NONE, for_people=True, is_change=is_change)

    def form(self, endpoint: Endpoint) -> Endpoint:
        """For forms that need no sign-in, to sign in and out. Other sites cannot submit them for a visitor."""

        async def answer(request: Request) -> Response:
            return await endpoint(request) if _is_from_own_page(request) else _another_site()

        return self._open(answer)

    def returning(self, endpoint: Endpoint) -> Endpoint:
        """For browsers that return from another site: without a sign-in, because they come without the cookie.

        The endpoint itself must check that it expects them.
        """

        async def answer(request: Request) -> Response:
            response = await self._open(endpoint)(request)
            # The address contains a secret of the other site, although one that works only once.
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

        return answer

    def sign_in_page(self, problem: str = "") -> str:
        """The page with all ways to sign in here."""
        return sign_in_page(problem, takes_a_key=self.reception.takes_a_key, companies=self.reception.companies)

    async def still_admits(self, request: Request) -> bool:
        """Whether a visitor who was admitted before, and still reads, would be admitted again."""
        try:
            return (await self.reception.visitor(request)).principal.role.covers(Role.SEE)
        except NotAdmitted as refused:
            # While the check is impossible, visitors stay admitted.
            return refused.status == 503

    async def turned_away(self, refused: NotAdmitted, *, for_people: bool) -> Response:
        """The response to a request that is not admitted. For a wrong key, it is delayed."""
        if refused.is_wrong:
            self._note_wrong()
            await asyncio.sleep(_WRONG_PAUSE)
        if refused.status == 401 and for_people:
            return HTMLResponse(self.sign_in_page(refused.told), status_code=401)
        headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
        if refused.status in _RETRY_AFTER:
            headers["Retry-After"] = str(_RETRY_AFTER[refused.status])
        told = refused.told or "A key or token is required: send 'Authorization: Bearer ...'."
        if for_people and refused.status in _TITLES:
            return HTMLResponse(message_page(_TITLES[refused.status], told), refused.status, headers)
        return PlainTextResponse(told, refused.status, headers)

    def _open(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: Request) -> Response:
            if len(request.headers.getlist("host")) > 1:
                return _protected(PlainTextResponse("Send one Host header.", status_code=400))
            return _protected(await self._misdirected(request) or await endpoint(request))

        return answer

    async def _misdirected(self, request: Request) -> Response | None:
        if not await self.reception.admits_name(request):
            return await self._hosts.validate_request(request)
        own = f"http://{request.headers.get('host', '')}"
        return None if request.headers.getlist("origin") in ([], [own]) else _another_site()

    def _guarded(
        self, endpoint: Endpoint, needed: Role, *, for_people: bool, for_anybody: bool = False, is_change: bool = False
    ) -> Endpoint:
        async def answer(request: Request) -> Response:
            try:
                visitor = await self.reception.visitor(request)
                if request.scope["path"] == "/" and self._has_only_own_page(visitor):
                    return RedirectResponse(OWN_PAGE, status_code=303)
                _check(visitor, needed, for_anybody=for_anybody)
            except NotAdmitted as refused:
                return await self.turned_away(refused, for_people=for_people)
            # A browser sends its cookie with any site's request, but no other site's page can add a header.
            if is_change and visitor.is_signed_in and not _is_from_own_page(request):
                return _another_site()
            request.scope[VISITOR_KEY] = visitor
            return await endpoint(request)

        return self._open(answer)

    def _has_only_own_page(self, visitor: Visitor) -> bool:
        return visitor.is_signed_in and visitor.principal.role is Role.NONE and self.reception.has_own_page


def _check(visitor: Visitor, needed: Role, *, for_anybody: bool) -> None:
    if visitor.is_anybody and not for_anybody:
        raise NotAdmitted(401, _NOT_FOR_ALL)
    if not visitor.principal.role.covers(needed):
        raise NotAdmitted(403, no_role(visitor.principal, needed))


def _is_from_own_page(request: Request) -> bool:
    """Whether a form came from one of our own pages. Origin was checked already, but it accepts any port of this
    machine.
    """
    given = request.headers
    if len(given.getlist("origin")) > 1:
        return False
    if "origin" in given and given["origin"].partition("://")[2] != given.get("host", ""):
        return False
    return given.get("sec-fetch-site", "same-origin" if "origin" in given else "") in OWN_SITE


def _another_site() -> Response:
    return PlainTextResponse("Another site may not do this.", status_code=403)


def _protected(response: Response) -> Response:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
