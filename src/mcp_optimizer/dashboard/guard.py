"""Access control of the dashboard: Host and Origin, the visitor's role, and the forms that pages receive.

Also checks the Host and Origin of `/mcp`: without that, a web page could point its own name to this machine and read
everything. Forms are read within limits. A request that is not admitted gets the page that asks for a sign-in; no page
here is ever given a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, quote, unquote

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from mcp_optimizer.dashboard.html import Child, el
from mcp_optimizer.dashboard.page_parts import frame, message_page
from mcp_optimizer.dashboard.reception import NotAdmitted, Reception, no_role
from mcp_optimizer.dashboard.visitor import VISITOR_KEY, Visitor
from mcp_optimizer.domain.principal import Role


def sign_in_page(problem: str = "", *, takes_a_key: bool = True) -> str:
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
    return frame("Sign in", el("h1", "Sign in"), told, lead, _sign_in_form() if takes_a_key else None, is_closed=True)


def _sign_in_form() -> Child:
    return el(
        "form",
        el("label", "Key or token", for_="token"),
        el("input", id="token", name="token", type="password", autocomplete="current-password", required=True,
           maxlength="1000"),
        el("button", "Sign in", type="submit", class_="main"),
        action="/login", method="post", class_="filter",
    )  # fmt: skip


def led_page(address: str) -> str:
    """Goes on by itself to where the sign-in is kept: a form may lead to no other name."""
    return frame(
        "Signed in",
        el("h1", "Signing you in"),
        el("p", el("a", "Go on", href=address, rel="noreferrer"), " under a name that no other program knows.",
           class_="lead"),
        el("meta", http_equiv="refresh", content=f"0;url={address}"),
        is_closed=True,
    )  # fmt: skip


def entered_page() -> str:
    """Goes on by itself: a browser sends its new cookie only from a page of ours."""
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
    """The fields of a form, each once; None if it is larger or slower than any form of ours."""
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
    """The parts of the path behind `under`, as they were sent: a name may contain a slash, which is then encoded."""
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
_OWN_PAGES = ("same-origin", "none")
"""Who sent a request, as browsers say in Sec-Fetch-Site: a page of ours, or a person without any page."""

_WRONG_PAUSE = 0.5
_RETRY_AFTER = {429: 60, 503: 2}
_TITLES = {403: "Not permitted", 429: "Too many wrong tokens", 503: "Try again shortly"}
_NOT_FOR_ALL = "Anyone who reaches this page may look at savings and tools. Everything else needs a sign-in."


class Guard:
    """Admits requests to pages, or responds in their place."""

    def __init__(
        self, hosts: TransportSecuritySettings, reception: Reception, note_wrong: Callable[[], None] = lambda: None
    ) -> None:
        """`note_wrong`: called for each key or token that is no good."""
        self._hosts = TransportSecurityMiddleware(hosts)
        self._note_wrong = note_wrong
        self.reception = reception

    def page(self, endpoint: Endpoint) -> Endpoint:
        """For people, and anybody where the dashboard is open: what a caller of an open gateway finds out anyway, and
        figures. Others are asked to sign in with a form.
        """
        return self._guarded(endpoint, Role.SEE, for_people=True, for_anybody=True)

    def private(self, endpoint: Endpoint) -> Endpoint:
        """For people who are signed in, also where the dashboard is open."""
        return self._guarded(endpoint, Role.SEE, for_people=True)

    def data(self, endpoint: Endpoint) -> Endpoint:
        """For programs, and anybody where the dashboard is open: others send a key or the token as a bearer."""
        return self._guarded(endpoint, Role.SEE, for_people=False, for_anybody=True)

    def action(self, endpoint: Endpoint) -> Endpoint:
        """For forms on our own pages that change something: refused if the page of another site sends them."""
        return self._guarded(endpoint, Role.MANAGE, for_people=True, is_change=True)

    def form(self, endpoint: Endpoint) -> Endpoint:
        """For forms of ours that anybody may send, to sign in and out. No other site may do that in their name."""

        async def answer(request: Request) -> Response:
            return await endpoint(request) if _is_from_own_page(request) else _another_site()

        return self._open(answer)

    def returning(self, endpoint: Endpoint) -> Endpoint:
        """For browsers that another site sends back: without a sign-in, because they come without the cookie.

        The endpoint itself must know whom it expects.
        """

        async def answer(request: Request) -> Response:
            response = await self._open(endpoint)(request)
            # The address has a secret of the other site, if only one that works once.
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

        return answer

    async def still_admits(self, request: Request) -> bool:
        """Whether who was let in before, and still reads, would be let in again."""
        try:
            return (await self.reception.visitor(request)).principal.role.covers(Role.SEE)
        except NotAdmitted as refused:
            # While nobody can say, nobody is sent away.
            return refused.status == 503

    async def turned_away(self, refused: NotAdmitted, *, for_people: bool) -> Response:
        """The response to somebody who is not let in. One with a wrong key waits for it."""
        if refused.is_wrong:
            self._note_wrong()
            await asyncio.sleep(_WRONG_PAUSE)
        if refused.status == 401 and for_people:
            page = sign_in_page(refused.told, takes_a_key=self.reception.takes_a_key)
            return HTMLResponse(page, status_code=401)
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
                _check(visitor, needed, for_anybody=for_anybody)
            except NotAdmitted as refused:
                return await self.turned_away(refused, for_people=for_people)
            # A browser sends its cookie for any page that asks; what is in a header, no page can add for another site.
            if is_change and visitor.is_signed_in and not _is_from_own_page(request):
                return _another_site()
            request.scope[VISITOR_KEY] = visitor
            return await endpoint(request)

        return self._open(answer)


def _check(visitor: Visitor, needed: Role, *, for_anybody: bool) -> None:
    if visitor.is_anybody and not for_anybody:
        raise NotAdmitted(401, _NOT_FOR_ALL)
    if not visitor.principal.role.covers(needed):
        raise NotAdmitted(403, no_role(visitor.principal, needed))


def _is_from_own_page(request: Request) -> bool:
    """Whether a form came from a page of ours. Origin was checked already, but any port of this machine may be one."""
    given = request.headers
    if len(given.getlist("origin")) > 1:
        return False
    if "origin" in given and given["origin"].partition("://")[2] != given.get("host", ""):
        return False
    return given.get("sec-fetch-site", "same-origin" if "origin" in given else "") in _OWN_PAGES


def _another_site() -> Response:
    return PlainTextResponse("Another site may not do this.", status_code=403)


def _protected(response: Response) -> Response:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
