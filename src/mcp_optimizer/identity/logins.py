"""All logins of a gateway, one per server that wants one. Begins and ends logins; `server_login` maintains them.

A login begins with an address that a person opens in a browser, and ends with the address that the browser is
redirected to, which arrives at a port of this machine, at the dashboard, or pasted into a command.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec, Transport
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.challenges import with_more
from mcp_optimizer.identity.login import ONLY_USER, SHARED, Login, LoginStatus, status_of
from mcp_optimizer.identity.oauth_client import Attempt, ClientId, NotAwaited, configured, parameters, registered
from mcp_optimizer.identity.server_login import ServerLogin
from mcp_optimizer.identity.store import InMemory, LoginStore, SecretRows
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.authorization import Authorization, LoginOffer
from mcp_optimizer.upstream.header_command import HeaderCommand

logger = logging.getLogger(__name__)

_MOST_ATTEMPTS = 100
_ATTEMPT_SECONDS = 900.0
"""Seconds that a person may take to log in."""


Failed = Callable[[OptimizerError], None]

Told = Callable[[str, str], None]
"""Called with what happened to a login (`login/made`, `login/ended`), and its server."""


@dataclass(frozen=True)
class _Awaited:
    """An attempt to log in that a person may still finish."""

    since: float
    server: str
    attempt: Attempt
    failed: Failed

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.since > _ATTEMPT_SECONDS


class _Outcome:
    """The outcome of one attempt, which can be awaited."""

    def __init__(self) -> None:
        self._is_known = asyncio.Event()
        self._failure: OptimizerError | None = None

    def made(self) -> None:
        self._is_known.set()

    def failed(self, failure: OptimizerError) -> None:
        self._failure = failure
        self._is_known.set()

    async def wait(self) -> None:
        await self._is_known.wait()
        if self._failure is not None:
            raise self._failure


class Logins:
    """The logins to the servers of one gateway."""

    def __init__(
        self, rows: SecretRows | None = None, web: Web | None = None, told: Told = lambda _what, _server: None
    ) -> None:
        self._told = told
        self._rows = rows or InMemory()
        self._web = web or Web()
        self._specs: dict[str, ServerSpec] = {}
        self._logins: dict[str, ServerLogin] = {}
        self._commands: dict[str, HeaderCommand] = {}
        self._former = BackgroundTasks(logger, "A login that is not used any more could not be closed")
        self._attempts: dict[str, _Awaited] = {}
        self.callback_address = ""
        """The address that browsers on other machines return to; empty: browsers return only to a port of this machine.
        While it is set, others can reach the gateway, and no caller is offered a login.
        """

    def come_back_to(self, address: str) -> None:
        """Logins of the dashboard end at this address, because other machines can reach the gateway."""
        self.callback_address = address

    def of(self, spec: ServerSpec) -> Authorization | None:
        """The authorization for a server; None if it gets only the headers of its entry."""
        self._follow(spec)
        if spec.auth.headers_command and not spec.problem:
            # One object per server, because it caches the headers.
            return self._commands.setdefault(spec.name, HeaderCommand(spec))
        return self.login(spec) if wants_login(spec) else None

    def login(self, spec: ServerSpec) -> ServerLogin:
        self._follow(spec)
        if spec.name not in self._logins:
            # Per-caller entries are not used over HTTP, because callers are not known there.
            principal = ONLY_USER if spec.auth.per_caller else SHARED
            store = LoginStore(spec, principal, self._rows)
            self._logins[spec.name] = ServerLogin(spec, store, self._web_of(spec), self._offered)
        return self._logins[spec.name]

    def _web_of(self, spec: ServerSpec) -> Web:
        return self._web.named_by(spec.url, spec.auth.issuer)

    def forget(self, server: str) -> None:
        """Drop the state of a server that was removed, or whose name now means another server, which must not get it.

        The stored login stays, and is found again under the same name and address.
        """
        self._specs.pop(server, None)
        self._commands.pop(server, None)
        self._attempts = {state: one for state, one in self._attempts.items() if one.server != server}
        if (login := self._logins.pop(server, None)) is not None:
            self._former.spawn(login.close())

    def _follow(self, spec: ServerSpec) -> None:
        """Treat a changed entry as another server under the same name."""
        if spec.name in self._specs and self._specs[spec.name].of_session != spec.of_session:
            self.forget(spec.name)
        self._specs[spec.name] = spec

    async def begin(self, spec: ServerSpec, redirect_uri: str, failed: Failed = lambda _failure: None) -> Attempt:
        """Find out where to log in, and with which client id. `failed` is called if the login cannot be finished."""
        if not wants_login(spec) or spec.auth.kind is AuthKind.CLIENT_CREDENTIALS:
            raise ConfigurationError(why_no_login(spec))
        login = self.login(spec)
        known = await login.current()
        from mcp_optimizer.identity.discovery import discovered

        provider = await discovered(spec.url, spec.auth, login.challenge, self._web_of(spec))
        if not provider.has_pkce and not spec.auth.assumes_pkce:
            raise LoginFailed(
                f"the authorization server {provider.issuer} does not say that it supports PKCE (S256), without which "
                'a login can be stolen; if it does support it, write "pkce": "assume" in the auth of the entry'
            )
        if spec.auth.client_secret and not spec.auth.issuer and known is not None and known.issuer != provider.issuer:
            raise LoginFailed(
                f"its authorization server was {known.issuer} and is now {provider.issuer}, which would get the client "
                "secret; if that is right, write it as `issuer` in the auth of the entry"
            )
        client = configured(spec.auth, provider) or _reusable(known, provider.issuer, redirect_uri)
        if client is None:
            client = await registered(provider, redirect_uri, self._web_of(spec))
        scopes = provider.scopes
        if known is not None and known.issuer == provider.issuer:
            # Requesting more scopes must not lose those granted before.
            scopes = with_more(with_more(known.scopes, scopes), known.wanted) if known.wanted else scopes
        attempt = Attempt(provider, client, redirect_uri, scopes)
        self._remember(_Awaited(time.monotonic(), spec.name, attempt, failed))
        return attempt

    @asynccontextmanager
    async def _offered(self, spec: ServerSpec) -> AsyncIterator[LoginOffer]:
        """Offer a login that a person can make now, in a browser on this machine."""
        outcome = _Outcome()
        login = self.login(spec)
        async with AsyncExitStack() as stack:
            if self.callback_address:
                # Otherwise any caller could make their own login the one that serves all callers.
                raise ConfigurationError("Log in on the dashboard, or with the command.")
            from mcp_optimizer.identity.callback import waiting_for_browser

            waiting = await stack.enter_async_context(waiting_for_browser(self.finish, spec.auth.callback_port))
            attempt = await self.begin(spec, waiting.address, outcome.failed)
            stack.enter_context(login.kept.made.telling(outcome.made))
            yield LoginOffer(attempt.address, outcome.wait)

    async def finish(self, redirect: str, attempt: Attempt | None = None) -> str:
        """Finish a login after the authorization server redirected the browser. Returns the name of the server."""
        awaited = self._awaited(redirect, attempt)
        # Even if it fails: a code or state is valid only once.
        self._attempts.pop(awaited.attempt.state, None)
        try:
            await self._exchange(redirect, awaited)
        except OptimizerError as failure:
            awaited.failed(failure)
            raise
        except Exception as error:
            logger.exception("A login could not be finished")
            unfinished = LoginFailed("the login could not be finished; the log says more")
            awaited.failed(unfinished)
            raise unfinished from error
        self._told("login/made", awaited.server)
        return awaited.server

    async def _exchange(self, redirect: str, awaited: _Awaited) -> None:
        name, attempt = awaited.server, awaited.attempt
        code = attempt.code_in(redirect)
        provider = attempt.provider
        login = Login(
            provider.issuer,
            provider.token_endpoint,
            provider.resource,
            attempt.client,
            provider.revocation_endpoint,
            attempt.scopes,
        )
        spec = self._specs[name]
        endpoint = login.endpoint(spec.auth)
        tokens = await endpoint.for_code(self._web_of(spec), code, attempt.verifier, attempt.redirect_uri)
        await self._logins[name].keep(login.with_tokens(tokens, time.time()))

    async def log_out(self, spec: ServerSpec) -> bool:
        """Forget the login, and revoke its tokens at the authorization server. Returns whether there was a login."""
        login = self.login(spec)
        known = await login.current()
        found = await login.forget()
        if found:
            self._told("login/ended", spec.name)
        if known is not None and known.tokens is not None and known.revocation_endpoint:
            token = known.tokens.refresh or known.tokens.access
            form = {"token": token, "client_id": known.client.client_id}
            if known.client.secret:
                form["client_secret"] = known.client.secret
            try:
                await self._web_of(spec).post_form(known.revocation_endpoint, form)
            except (Unanswered, LoginFailed) as failure:
                logger.warning(
                    "Logged out of %s here; the login was not revoked at its authorization server: %s",
                    spec.name,
                    failure,
                )
        return found

    async def statuses(self, specs: Iterable[ServerSpec]) -> list[LoginStatus]:
        """The states of the logins of all servers that may want one."""
        found = []
        for spec in specs:
            if wants_login(spec):
                login = self.login(spec)
                found.append(status_of(spec.name, await login.current(), time.time()))
        return found

    async def close(self) -> None:
        await asyncio.gather(self._former.settled(), *(login.close() for login in self._logins.values()))
        await self._web.close()

    def _remember(self, awaited: _Awaited) -> None:
        waiting = {state: kept for state, kept in self._attempts.items() if not kept.is_over}
        self._attempts = dict(list(waiting.items())[-_MOST_ATTEMPTS + 1 :])
        self._attempts[awaited.attempt.state] = awaited

    def _awaited(self, redirect: str, attempt: Attempt | None) -> _Awaited:
        state = attempt.state if attempt is not None else parameters(redirect).get("state", "")
        found = self._attempts.get(state)
        if found is None or found.is_over:
            raise NotAwaited("no login waits for this answer: it was used, took too long, or is not from here")
        return found


def wants_login(spec: ServerSpec) -> bool:
    """Whether the gateway logs in to a server if the server requires it."""
    if spec.transport is Transport.STDIO or spec.problem or spec.auth.kind is AuthKind.NONE:
        return False
    if spec.auth.headers_command:
        return False
    is_given = any(name.lower() == "authorization" for name in spec.headers)
    return spec.auth.kind is not AuthKind.AUTO or not is_given


def why_no_login(spec: ServerSpec) -> str:
    """Why a server has no login."""
    if spec.problem:
        return f"The entry of {spec.name!r} cannot be used: {spec.problem}"
    if spec.transport is Transport.STDIO:
        return f"{spec.name!r} is a command on this machine; its secrets are in the env of its entry."
    if spec.auth.kind is AuthKind.CLIENT_CREDENTIALS:
        return f"{spec.name!r} uses the gateway's own account (client_credentials), and needs no login."
    return f"The entry of {spec.name!r} has its own headers, or says that there is no login."


def _reusable(known: Login | None, issuer: str, redirect_uri: str) -> ClientId | None:
    """The client id registered earlier with the same authorization server for the same redirect address, if any."""
    client = known.client if known is not None else None
    is_same = client is not None and client.issuer == issuer and client.redirect_uri == redirect_uri
    return client if is_same else None


def by_name(specs: Iterable[ServerSpec], name: str) -> ServerSpec:
    found: Mapping[str, ServerSpec] = {spec.name: spec for spec in specs}
    if name not in found:
        raise ConfigurationError(f"There is no server {name!r}. Servers: {', '.join(found) or 'none'}.")
    return found[name]
