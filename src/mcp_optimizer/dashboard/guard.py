"""Access control: the Host and Origin that `/mcp` accepts, and a token if the server is not on loopback.

Without the Host check, a web page could point its own name to this machine and read everything.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from mcp_optimizer.dashboard.html import el
from mcp_optimizer.dashboard.parts import frame

Endpoint = Callable[[Request], Awaitable[Response]]

COOKIE = "mcp-optimizer"
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

_LONGEST_LOGIN = 4_096
_LOGIN_SECONDS = 10.0
_MOST_FIELDS = 4_096
_MONTH = 30 * 86_400
_WRONG_TOKEN_PAUSE = 0.5


def _protected(response: Response) -> Response:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def _short_body(request: Request) -> bytes | None:
    """A form's body; None if it is larger or slower than any form of ours."""
    body = bytearray()
    try:
        async with asyncio.timeout(_LOGIN_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LONGEST_LOGIN:
                    return None
    except TimeoutError:
        return None
    return bytes(body)


class Guard:
    """Admits requests to pages, or responds in their place."""

    def __init__(self, hosts: TransportSecuritySettings, *, is_loopback: bool, token: str) -> None:
        self._hosts = TransportSecurityMiddleware(hosts)
        self._is_loopback = is_loopback
        self._token = token
        self._cookie = hmac.digest(token.encode(), b"dashboard", "sha256").hex()

    def page(self, endpoint: Endpoint) -> Endpoint:
        """For people: asks for the token with a form."""
        return self._guarded(endpoint, for_people=True)

    def data(self, endpoint: Endpoint) -> Endpoint:
        """For programs: requires the token as a bearer."""
        return self._guarded(endpoint, for_people=False)

    def action(self, endpoint: Endpoint) -> Endpoint:
        """For forms on our own pages: refused if the page of another site sends them."""

        async def same_site(request: Request) -> Response:
            # Origin was checked already, but any port of this machine may be one; this header tells them apart.
            # A program that sends neither has the token; browsers send at least one of them with a form.
            is_named = "origin" in request.headers or "authorization" in request.headers
            if request.headers.get("sec-fetch-site", "none" if is_named else "") not in _OWN_PAGES:
                return PlainTextResponse("Another site may not do this.", status_code=403)
            return await endpoint(request)

        return self._guarded(same_site, for_people=True)

    def returning(self, endpoint: Endpoint) -> Endpoint:
        """For browsers that another site sends back: without the token, because they come without the cookie.

        The endpoint itself must know whom it expects.
        """

        async def answer(request: Request) -> Response:
            response = _protected(await self._hosts.validate_request(request) or await endpoint(request))
            # The address has a secret of the other site, if only one that works once.
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

        return answer

    def _guarded(self, endpoint: Endpoint, *, for_people: bool) -> Endpoint:
        async def answer(request: Request) -> Response:
            response = await self._hosts.validate_request(request)
            if response is None and not self._is_admitted(request):
                response = self._ask(for_people=for_people)
            return _protected(response or await endpoint(request))

        return answer

    async def login(self, request: Request) -> Response:
        """The form with the token was sent."""
        refusal = await self._hosts.validate_request(request)
        if refusal is not None:
            return refusal
        body = await _short_body(request)
        if body is None:
            return PlainTextResponse("Too long", status_code=413, headers={"Connection": "close"})
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS).get("token", [""])[0]
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            await asyncio.sleep(_WRONG_TOKEN_PAUSE)
            response: Response = self._ask(for_people=True, problem="Wrong token.")
        else:
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(
                COOKIE,
                self._cookie,
                max_age=_MONTH,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        response.headers.update(HEADERS)
        return response

    def _is_admitted(self, request: Request) -> bool:
        if not self._token:
            return self._is_loopback
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        # A header's bytes are read as Latin-1; the token is compared with the bytes that were sent.
        if scheme.lower() == "bearer" and hmac.compare_digest(bearer.strip().encode("latin-1"), self._token.encode()):
            return True
        return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self._cookie.encode())

    def _ask(self, *, for_people: bool, problem: str = "") -> Response:
        if not self._token:
            told = (
                "This server is not on loopback, so the dashboard and metrics require a token: set dashboard_token "
                "(MCP_OPTIMIZER_DASHBOARD_TOKEN)."
            )
            return PlainTextResponse(told, status_code=403)
        if not for_people:
            return PlainTextResponse(
                "A bearer token is required.", status_code=401, headers={"WWW-Authenticate": "Bearer"}
            )
        form = el(
            "form",
            el("label", "Token", for_="token"),
            el("input", id="token", name="token", type="password", autocomplete="current-password", required=True),
            el("button", "Show the dashboard", type="submit"),
            action="/login",
            method="post",
            class_="filter",
        )
        hint = el("p", problem or "The value of dashboard_token.", class_="empty")
        return HTMLResponse(frame("Sign in", el("h1", "Sign in"), hint, form), status_code=401)
