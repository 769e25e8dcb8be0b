"""Signing in and out on the dashboard: with a key, a token, a ticket from the owner's command, or at a token issuer.

Built by the composition root; `reception` knows who is signed in.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.guard import OWN_SITE, WITH_COMPANY, Guard, entered_page, form_of, led_page
from mcp_optimizer.dashboard.html import el
from mcp_optimizer.dashboard.page_parts import frame
from mcp_optimizer.dashboard.reception import ENTRANCE, NotAdmitted, Reception
from mcp_optimizer.dashboard.sign_ins import LASTS
from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.domain.audit import AuditEntry, Trail

if TYPE_CHECKING:
    from mcp_optimizer.access.callers.company_sign_in import CompanySignIn, CompanySignIns, Person

logger = logging.getLogger(__name__)


_LONGEST_FORM = 4_096


def with_sign_in(reception: Reception, request: Request, response: Response, kept: str) -> Response:
    """The response that gives the browser the secret of its sign-in."""
    response.set_cookie(
        reception.cookie(request),
        kept,
        max_age=LASTS,
        httponly=True,
        samesite="strict",
        secure=reception.is_secure(request),
    )
    return response


class SignInForms:
    """The endpoints of the forms for signing in and out."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._reception = guard.reception

    def routes(self) -> list[Route]:
        form, page = self._guard.form, self._guard.page
        return [
            Route("/login", form(self._sign_in), methods=["POST"]),
            Route("/login", page(self._ask), methods=["GET"]),
            Route("/logout", form(self._sign_out), methods=["POST"]),
            # For visitors who reopen the address of a form's response.
            Route("/logout", page(_home), methods=["GET"]),
            Route(ENTRANCE, self._guard.returning(self._enter), methods=["GET"]),
        ]

    async def _ask(self, request: Request) -> Response:
        """The sign-in form. Even an open dashboard reserves some pages for signed-in visitors."""
        if visitor_of(request).is_anybody:
            return HTMLResponse(self._guard.sign_in_page())
        return await _home(request)

    async def _enter(self, request: Request) -> Response:
        """The browser comes from the owner's terminal or a file, so it gets its cookie first, and then a page that
        forwards.
        """
        if request.method != "GET":
            # A request that only probes the address, such as a preview, must not use the ticket up.
            return PlainTextResponse("Open it in a browser.", status_code=405)
        try:
            kept = await self._reception.enter(request.query_params.get("ticket", ""))
            await self._reception.sign_out(request)
        except NotAdmitted as refused:
            return await self._guard.turned_away(refused, for_people=True)
        return with_sign_in(self._reception, request, HTMLResponse(entered_page()), kept)

    async def _sign_in(self, request: Request) -> Response:
        fields = await form_of(request, _LONGEST_FORM)
        if fields is None:
            return PlainTextResponse("Too long", status_code=413, headers={"Connection": "close"})
        try:
            found = await self._reception.sign_in(request, fields.get("token", ""))
            await self._reception.sign_out(request)
        except NotAdmitted as refused:
            return await self._guard.turned_away(refused, for_people=True)
        if found.leads_to:
            return HTMLResponse(led_page(found.leads_to))
        return with_sign_in(self._reception, request, await _home(request), found.kept)

    async def _sign_out(self, request: Request) -> Response:
        try:
            await self._reception.sign_out(request)
        except NotAdmitted as refused:
            return await self._guard.turned_away(refused, for_people=True)
        response = await _home(request)
        name, secure = self._reception.cookie(request), self._reception.is_secure(request)
        response.delete_cookie(name, httponly=True, samesite="strict", secure=secure)
        return response


async def _home(_request: Request) -> Response:
    return RedirectResponse("/", status_code=303)


# The addresses at which a browser begins to sign in with a token issuer, and to which it returns. Built by the
# composition root; `company_sign_in` does the protocol, `reception` knows who is signed in. The browser goes on to
# nothing but the issuer's own page and the start page here, so no address leads it elsewhere.

RETURN = "/login/done"
_ACT = "dashboard/sign-in"
_LONGEST_RETURN = 20_000
_NOT_BEGUN = "This sign-in did not begin in this browser, or took too long. Begin again."


class CompanySignInRoutes:
    """Begins and ends sign-ins with the issuers of the settings."""

    def __init__(self, guard: Guard, sign_ins: CompanySignIns, trail: Trail | None) -> None:
        self._guard = guard
        self._reception = guard.reception
        self._sign_ins = sign_ins
        self._trail = trail

    def routes(self) -> list[Route]:
        open_to_all = self._guard.returning
        return [
            Route(f"{WITH_COMPANY}/{{name}}", open_to_all(self._begin), methods=["GET"]),
            Route(RETURN, open_to_all(self._return), methods=["GET"]),
        ]

    async def _begin(self, request: Request) -> Response:
        from mcp_optimizer.access.callers.company_sign_in import FAILURES, NOT_NOW, SECONDS, reason

        one, public = self._sign_ins.named(request.path_params["name"]), self._reception.public_url
        if request.method != "GET":
            return PlainTextResponse("Open it in a browser.", status_code=405)
        is_elsewhere = request.headers.get("host", "").lower() != urlsplit(public).netloc.lower()
        if one is None or is_elsewhere or request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
            # What the browser keeps belongs to the name to which it returns.
            return RedirectResponse(f"{public}/login", status_code=303)
        try:
            begun = await one.begin(self._returns_to)
        except (*FAILURES, *NOT_NOW) as failure:
            logger.warning("No sign-in with %r can begin: %s", one.name, failure)
            return _problem(f"{one.title} cannot be reached", reason(failure), 503)
        response = RedirectResponse(begun.address, status_code=303)
        # Lax, because the browser returns from another site. It opens nothing: only the issuer's answer does.
        response.set_cookie(
            self._cookie(request),
            begun.kept,
            max_age=SECONDS,
            httponly=True,
            samesite="lax",
            secure=self._reception.is_secure(request),
        )
        return response

    async def _return(self, request: Request) -> Response:
        if request.method != "GET":
            # A request that only probes the address must not use the answer up.
            return PlainTextResponse("Open it in a browser.", status_code=405)
        kept = request.cookies.get(self._cookie(request), "")
        one = self._sign_ins.of(kept)
        response = (
            _problem("Not signed in", _NOT_BEGUN, 400) if one is None else await self._entered(request, one, kept)
        )
        name, secure = self._cookie(request), self._reception.is_secure(request)
        response.delete_cookie(name, httponly=True, samesite="lax", secure=secure)
        return response

    async def _entered(self, request: Request, one: CompanySignIn, kept: str) -> Response:
        from mcp_optimizer.access.callers.company_sign_in import FAILURES, NOT_NOW, reason

        try:
            person = await one.finish(kept, f"?{request.scope['query_string'].decode('latin-1')[:_LONGEST_RETURN]}",
                                      self._returns_to)  # fmt: skip
        except FAILURES as failure:
            logger.warning("A sign-in with %r failed: %s", one.name, failure)
            return _problem("Not signed in", reason(failure), 401)
        except NOT_NOW as failure:
            logger.warning("A sign-in with %r could not be finished: %s", one.name, failure)
            return _problem(f"{one.title} cannot be asked now", reason(failure), 503)
        try:
            secret = await self._reception.sign_in_person(person)
        except NotAdmitted as refused:
            if refused.status != 503:
                self._record(person, refused)
            return _problem("Not permitted" if refused.status == 403 else "Not signed in", refused.told, refused.status)
        self._record(person)
        return with_sign_in(self._reception, request, HTMLResponse(entered_page()), secret)

    def _record(self, person: Person, refused: NotAdmitted | None = None) -> None:
        if self._trail is not None:
            who = person.principal
            entry = AuditEntry(time.time_ns() // 1_000_000, who.name_in_audit, who.tenant, "dashboard", method=_ACT)
            denied = entry._replace(decision="deny", outcome="denied") if refused is not None else entry
            self._trail.add(denied)

    @property
    def _returns_to(self) -> str:
        return f"{self._reception.public_url}{RETURN}"

    def _cookie(self, request: Request) -> str:
        """What keeps a sign-in that has begun; it opens nothing."""
        return f"{self._reception.cookie(request)}-begun"


def _problem(title: str, told: str, status: int) -> Response:
    page = frame(
        title,
        el("h1", title),
        el("p", told, class_="lead", role="alert"),
        el("p", el("a", "Sign in", href="/login", class_="button main"), class_="actions"),
        is_closed=True,
    )
    return HTMLResponse(page, status_code=status)
