"""All logins of a gateway: one per server that wants one, or one per caller and server for entries that act as each
caller. Begins and ends logins; `server_login` maintains them.

A login begins with an address that a person opens in a browser, and ends with the address that the browser is
redirected to, which arrives at a port of this machine, at the dashboard, or pasted into a command.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec, Transport
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Principal
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.attempts import Attempts, Awaited, Failed
from mcp_optimizer.identity.caller_tokens import Given, exchanged_by_callers
from mcp_optimizer.identity.challenges import with_more
from mcp_optimizer.identity.exchange import Exchanges
from mcp_optimizer.identity.login import ONLY_USER, SHARED, Login, LoginStatus, account_of, status_of
from mcp_optimizer.identity.oauth_client import Attempt, ClientId, NotAwaited, configured, parameters, registered
from mcp_optimizer.identity.server_login import ServerLogin
from mcp_optimizer.identity.store import KIND, InMemory, LoginStore, SecretRows, beginning_of, ending_of
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.authorization import Authorization, HeaderCommand, LoginOffer

logger = logging.getLogger(__name__)

Told = Callable[[str, str, Principal], None]
"""Called with what happened to a login (`login/made`, `login/ended`), its server, and who uses it."""


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
        self,
        rows: SecretRows | None = None,
        web: Web | None = None,
        told: Told = lambda _what, _server, _whose: None,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        """`is_one_of_many`: other gateways share the rows, and any of them may get what began at another."""
        self._told = told
        self._rows = rows or InMemory()
        self._web = web or Web()
        self._specs: dict[str, ServerSpec] = {}
        self._logins: dict[str, dict[str, ServerLogin]] = {}
        """By server and account."""
        self._commands: dict[str, HeaderCommand] = {}
        shared = rows if is_one_of_many else None
        self.exchanges = Exchanges(self._web, shared=shared)
        self._former = BackgroundTasks(logger, "A login that is not used any more could not be closed")
        self._attempts = Attempts(shared)
        self.callback_address = ""
        """The address that browsers on other machines return to; empty: browsers return only to a port of this machine.
        While it is set, others can reach the gateway, and no caller is offered a login that others use.
        """
        self._own_page = ""

    def listen(self, told: Told) -> None:
        """Call this, too, when a login is made or ended."""
        before = self._told

        def both(what: str, server: str, principal: Principal) -> None:
            before(what, server, principal)
            told(what, server, principal)

        self._told = both

    def come_back_to(self, address: str, own_page: str = "") -> None:
        """Logins of the dashboard end at this address, because other machines can reach the gateway. `own_page`: where
        callers make their own logins.
        """
        self.callback_address = address
        self._own_page = own_page

    def of(self, spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> Authorization | None:
        """A caller's authorization for a server; None if it gets only the headers of its entry."""
        self._follow(spec)
        if spec.auth.headers_command and not spec.problem:
            # One object per server, because it caches the headers.
            return self._commands.setdefault(spec.name, HeaderCommand(spec))
        if spec.auth.exchange is not None and not spec.problem:
            return self.exchanges.of(spec, principal)
        return self.login(spec, principal) if wants_login(spec) else None

    def login(self, spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> ServerLogin:
        """The login that a caller uses at a server."""
        self._follow(spec)
        account, known = account_of(spec, principal), self._logins.setdefault(spec.name, {})
        if account not in known:
            store, offer = LoginStore(spec, account, self._rows), partial(self._offered, spec, principal)
            how = None if account in (SHARED, ONLY_USER) else self.how_to_log_in
            known[account] = ServerLogin(spec, store, self._web_of(spec), offer, how)
        return known[account]

    def how_to_log_in(self) -> str:
        """What a caller does to make a login of its own."""
        return f"log in at {self._own_page}" if self._own_page else "log in on the page /mine of the gateway"

    async def logged_in(self, specs: Iterable[ServerSpec], principal: Principal) -> frozenset[str]:
        """The servers, of entries that act as each caller, to which a caller has ever logged in and not out again."""
        specs = list(specs)
        found: set[str] = set()
        for account in {account_of(spec, principal) for spec in specs}:
            names = frozenset(await self._rows.names(KIND, beginning_of(account)))
            found |= {spec.name for spec in specs if f"{beginning_of(account)}{ending_of(spec)}" in names}
        return frozenset(found)

    async def callers(self, spec: ServerSpec) -> list[str]:
        """The accounts that have a login of their own to a server, without the one of commands."""
        ending = ending_of(spec)
        names = [name for name in await self._rows.names(KIND) if name.endswith(f"\n{ending}")]
        accounts = (name.removesuffix(f"\n{ending}") for name in names)
        return sorted(account for account in accounts if account not in (SHARED, ONLY_USER))

    def _web_of(self, spec: ServerSpec) -> Web:
        return self._web.named_by(spec.url, spec.auth.issuer)

    def forget(self, server: str) -> None:
        """Drop the state of a server that was removed, or whose name now means another server, which must not get it.

        The stored login stays, and is found again under the same name and address.
        """
        self._specs.pop(server, None)
        self._commands.pop(server, None)
        self.exchanges.forget(server)
        self._attempts.forget(server)
        for login in self._logins.pop(server, {}).values():
            self._former.spawn(login.close())

    def _follow(self, spec: ServerSpec) -> None:
        """Treat a changed entry as another server under the same name."""
        if spec.name in self._specs and self._specs[spec.name].of_session != spec.of_session:
            self.forget(spec.name)
        self._specs[spec.name] = spec

    async def begin(
        self,
        spec: ServerSpec,
        redirect_uri: str,
        failed: Failed = lambda _failure: None,
        principal: Principal = LOCAL_PRINCIPAL,
    ) -> Attempt:
        """Find out where a caller logs in, and with which client id. `failed` is called if the login cannot be
        finished.
        """
        if not wants_login(spec) or spec.auth.kind is AuthKind.CLIENT_CREDENTIALS:
            raise ConfigurationError(why_no_login(spec))
        login = self.login(spec, principal)
        known = await login.current()
        from mcp_optimizer.identity.discovery import discovered

        provider = await discovered(spec.url, spec.auth, await login.demanded(), self._web_of(spec))
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
        await self._attempts.add(Awaited(spec.name, ending_of(spec), attempt, failed, principal, time.time()))
        return attempt

    @asynccontextmanager
    async def _offered(self, spec: ServerSpec, principal: Principal) -> AsyncIterator[LoginOffer]:
        """Offer a login that a person can make now: in a browser on this machine, or, for a caller's own login to a
        gateway that others reach, on a page that knows who is signed in there. An address that led straight to the
        authorization server could be sent to somebody else, who would then log the caller in as themselves.
        """
        outcome = _Outcome()
        login = self.login(spec, principal)
        if self._own_page and account_of(spec, principal) not in (SHARED, ONLY_USER):
            yield LoginOffer(self._own_page, login.until_login)
            return
        async with AsyncExitStack() as stack:
            if self.callback_address:
                # Otherwise any caller could make their own login the one that serves all callers.
                raise ConfigurationError("Log in on the dashboard, or with the command.")
            from mcp_optimizer.identity.callback import waiting_for_browser

            waiting = await stack.enter_async_context(waiting_for_browser(self.finish, spec.auth.callback_port))
            attempt = await self.begin(spec, waiting.address, outcome.failed, principal)
            stack.enter_context(login.kept.made.telling(outcome.made))
            yield LoginOffer(attempt.address, outcome.wait)

    async def finish(self, redirect: str, attempt: Attempt | None = None, specs: Iterable[ServerSpec] = ()) -> str:
        """Finish a login after the authorization server redirected the browser. Returns the name of the server.

        `specs`: the entries of now, of which this gateway may not have used that of a login that began at another.
        """
        state = attempt.state if attempt is not None else parameters(redirect).get("state", "")
        awaited = await self._attempts.taken(state)
        for spec in specs:
            if spec.name == awaited.server and spec.name not in self._specs:
                self._follow(spec)
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
        self._told("login/made", awaited.server, awaited.principal)
        return awaited.server

    async def _exchange(self, redirect: str, awaited: Awaited) -> None:
        name, attempt = awaited.server, awaited.attempt
        code = attempt.code_in(redirect)
        if name not in self._specs or ending_of(self._specs[name]) != awaited.place:
            raise NotAwaited(f"the entry of {name!r} has changed since the login began")
        provider = attempt.provider
        login = Login(
            provider.issuer,
            provider.token_endpoint,
            provider.resource,
            attempt.client,
            provider.revocation_endpoint,
            attempt.scopes,
        )
        spec, principal = self._specs[name], awaited.principal
        if account_of(spec, principal) not in (SHARED, ONLY_USER):
            login = replace(login, caller=principal.name)
        endpoint = login.endpoint(spec.auth)
        tokens = await endpoint.for_code(self._web_of(spec), code, attempt.verifier, attempt.redirect_uri)
        await self.login(spec, principal).keep(login.with_tokens(tokens, time.time()))

    async def log_out(self, spec: ServerSpec, principal: Principal = LOCAL_PRINCIPAL) -> bool:
        """Forget a caller's login, and revoke its tokens at the authorization server. Returns whether there was one."""
        login = self.login(spec, principal)
        known = await login.current()
        found = await login.forget()
        if found:
            self._told("login/ended", spec.name, principal)
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

    async def statuses(self, specs: Iterable[ServerSpec], principal: Principal = LOCAL_PRINCIPAL) -> list[LoginStatus]:
        """The states of the logins that a caller uses, at all servers that may want one."""
        wanted = [spec for spec in specs if wants_login(spec)]
        return [status_of(spec.name, await self.login(spec, principal).current(), time.time()) for spec in wanted]

    async def statuses_of_callers(self, specs: Iterable[ServerSpec], caller: str) -> list[LoginStatus]:
        """The states of callers' own logins, and of what their tokens were exchanged for: of those whose name, or
        account, fits a pattern such as `corp:*`.
        """
        specs = list(specs)
        fits, found = glob(caller).matches, []
        for spec in (spec for spec in specs if spec.auth.per_caller and wants_login(spec)):
            for account in await self.callers(spec):
                login = await LoginStore(spec, account, self._rows).read()
                name = login.caller if login is not None and login.caller else account
                if fits(name) or account == caller:
                    found.append(status_of(spec.name, login, time.time(), name))
        for spec in (spec for spec in specs if spec.auth.exchange is not None and not spec.problem):
            wanted = partial(_is_of, fits, caller)
            for name, given in await exchanged_by_callers(spec, self._rows, wanted):
                found.append(exchanged_status(spec, name, given, time.time()))
        return found

    async def close(self) -> None:
        logins = [login for known in self._logins.values() for login in known.values()]
        await asyncio.gather(self.exchanges.close(), self._former.settled(), *(login.close() for login in logins))
        await self._web.close()


def _is_of(fits: Callable[[str], bool], caller: str, account: str, name: str) -> bool:
    return fits(name) or account == caller


def exchanged_status(spec: ServerSpec, caller: str, given: Given, now: float) -> LoginStatus:
    """The state of what a caller's token was exchanged for."""
    assert spec.auth.exchange is not None
    issuer, granted = spec.auth.issuer or spec.auth.exchange.provider, given.tokens.scopes
    state = "expired" if given.is_over(now) else "exchanged"
    return LoginStatus(
        spec.name,
        state,
        issuer,
        spec.auth.exchange.scopes if granted is None else granted,
        given.ends,
        given.at,
        can_refresh=True,
        caller=caller,
    )


def wants_login(spec: ServerSpec) -> bool:
    """Whether the gateway logs in to a server if the server requires it."""
    if spec.transport is Transport.STDIO or spec.problem or spec.auth.kind in (AuthKind.NONE, AuthKind.EXCHANGE):
        return False
    if spec.auth.headers_command:
        return False
    is_given = any(name.lower() == "authorization" for name in spec.header_names)
    return spec.auth.kind is not AuthKind.AUTO or not is_given


def why_no_login(spec: ServerSpec) -> str:
    """Why a server has no login."""
    if spec.problem:
        return f"The entry of {spec.name!r} cannot be used: {spec.problem}"
    if spec.transport is Transport.STDIO:
        return f"{spec.name!r} is a command on this machine; its secrets are in the env of its entry."
    if spec.auth.kind is AuthKind.CLIENT_CREDENTIALS:
        return f"{spec.name!r} uses the gateway's own account (client_credentials), and needs no login."
    if spec.auth.kind is AuthKind.EXCHANGE:
        return f"{spec.name!r} gets a token in exchange for that of each caller, so no person logs in there."
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
