"""Signing in and out on the dashboard, with a key, a token, or a ticket from the owner's command.

Built by the composition root; `reception` knows who is signed in.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.guard import Guard, entered_page, form_of, led_page
from mcp_optimizer.dashboard.reception import ENTRANCE, NotAdmitted, Reception
from mcp_optimizer.dashboard.sign_ins import LASTS
from mcp_optimizer.dashboard.visitor import visitor_of

_LONGEST = 4_096


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
        fields = await form_of(request, _LONGEST)
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
