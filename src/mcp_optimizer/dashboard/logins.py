"""Logging in to servers from the dashboard: a page of all logins, forms that begin and end one, and the way back.

Built by the composition root. `guard` refuses other sites, and those who may only see.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.forms import sent_parts
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.login_pages import (
    PATH,
    BegunLogin,
    LoginRow,
    logins_page,
    outcome_page,
    question_page,
)
from mcp_optimizer.dashboard.own_host import listening_at
from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.logins import Logins, by_name, wants_login, why_no_login
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.upstream.auth_spec import AuthKind
from mcp_optimizer.upstream.spec import ServerSpec
from mcp_optimizer.upstream.state import UpstreamState

CALLBACK = f"{PATH}/callback"
"""Where browsers come back to; added to the gateway's public address."""

SET_OUT = f"{PATH}/set-out"
"""Where browsers pass on their way to an issuer, if they come back under another name than they set out from."""

_PURPOSE = "the way to an issuer"
COOKIE = "mcp-optimizer-login"
_PATIENCE = 900
"""Seconds for a person to log in."""

_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""A Host header that is safe in an address: the guard compares only its beginning with an entry such as host:*."""


@dataclass(frozen=True)
class LoginSources:
    """The parts that the pages of logins use."""

    logins: Logins
    servers: Callable[[], Sequence[UpstreamState]]
    public_url: str
    """Where browsers reach the gateway; empty: where the request at hand reached it."""
    signatures: Signatures
    version: str


class LoginPages:
    """Responds with pages, and begins and ends logins."""

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
            # Somebody opens again the address of a page that a form led to.
            Route(f"{PATH}/{{rest:path}}", guard.private(_back_to_all), methods=["GET"]),
        ]

    async def _all(self, request: Request) -> Response:
        states = {state.spec.name: state for state in self._sources.servers()}
        found = await self._sources.logins.statuses(state.spec for state in states.values())
        rows = [
            LoginRow(
                login,
                states[login.server].status is ServerStatus.LOGIN_NEEDED,
                states[login.server].spec.auth.kind is AuthKind.CLIENT_CREDENTIALS,
            )
            for login in found
        ]
        return HTMLResponse(logins_page(rows, time.time(), self._sources.version, visitor_of(request)))

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

    async def _log_in(self, spec: ServerSpec, request: Request) -> Response:
        title = f"Cannot log in to {spec.name}"
        try:
            returns_to = self._returns_to(request)
            attempt = await self._sources.logins.begin(spec, returns_to)
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
        """A cookie for the name to come back to can only be set there, so the browser passes it on its way."""
        signature = await self._sources.signatures.sign(_PURPOSE, f"{mark} {address}")
        query = urlencode({"mark": mark, "to": address, "signature": signature})
        return f"{returns_to.removesuffix(CALLBACK)}{SET_OUT}?{query}"

    async def _set_out(self, request: Request) -> Response:
        mark, address, signature = (request.query_params.get(name, "") for name in ("mark", "to", "signature"))
        if not await self._sources.signatures.is_ours(_PURPOSE, f"{mark} {address}", signature):
            return self._outcome("Not logged in", "This link is not one of this gateway. You can begin again.", 400)
        # Only names under .localhost come back elsewhere, and none of them has a certificate.
        return _marked(RedirectResponse(address, status_code=303), mark, is_secure=False)

    async def _log_out(self, spec: ServerSpec, request: Request) -> Response:
        if not wants_login(spec):
            return self._outcome(f"Cannot log out of {spec.name}", why_no_login(spec), 400)
        try:
            await self._sources.logins.log_out(spec)
        except OptimizerError as failure:
            return self._outcome(f"Cannot log out of {spec.name}", _sentence(failure), 502)
        return await _back_to_all(request)

    async def _come_back(self, request: Request) -> Response:
        outcome = partial(self._outcome, is_elsewhere=self._guard.reception.is_elsewhere(request))
        state = request.query_params.get("state", "")
        if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), _mark(state).encode()):
            told = "This browser did not begin the login, or began another one since. You can begin again."
            return outcome("Not logged in", told, 400)
        try:
            server = await self._sources.logins.finish(f"{CALLBACK}?{request.scope['query_string'].decode('latin-1')}")
        except OptimizerError as failure:
            return outcome("Not logged in", f"{_sentence(failure)} You can begin again.", 400)
        return outcome("Logged in", f"You are logged in to {server}, which starts by itself now.", 200)

    def _returns_to(self, request: Request) -> str:
        """Never the name that sign-ins have to themselves: the issuer is told, and it may be anybody's."""
        if self._sources.public_url:
            return f"{self._sources.public_url}{CALLBACK}"
        if self._guard.reception.is_at_own_name(request):
            return f"{listening_at(request)}{CALLBACK}"
        host = request.headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise ConfigurationError("The address of this page cannot be used to come back to; set public_url.")
        return f"{request.scope['scheme']}://{host}{CALLBACK}"

    def _outcome(self, title: str, text: str, status: int, *, is_elsewhere: bool = False) -> Response:
        page = outcome_page(title, text, self._sources.version, is_elsewhere=is_elsewhere)
        return HTMLResponse(page, status_code=status)


def _marked(response: Response, mark: str, *, is_secure: bool) -> Response:
    """Only this browser may come back: whoever opens the link elsewhere logs in to nothing here."""
    response.set_cookie(
        COOKIE,
        mark,
        max_age=_PATIENCE,
        path=CALLBACK,
        httponly=True,
        samesite="lax",
        secure=is_secure,
    )
    return response


def _mark(state: str) -> str:
    """What the browser keeps of an attempt: not the state itself, which its page must not show."""
    return hashlib.sha256(f"began {state}".encode()).hexdigest()


async def _back_to_all(_request: Request) -> Response:
    return RedirectResponse(PATH, status_code=303)


def _sentence(failure: OptimizerError) -> str:
    text = str(failure).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
