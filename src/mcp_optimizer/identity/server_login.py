"""Keeps one principal logged in to one server: sends its token, refreshes it, and reports when a person must log in.

Nothing is locked during a request. One refresh serves all calls, and all processes that share the store. After a
transient failure the tokens are kept, and the refresh is retried after growing pauses; a final failure is reported
once. Used by the HTTP transports as their `Authorization`, and by `logins`. Never opens a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

from mcp_optimizer.config.serverfile.spec import AuthKind, ServerSpec
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.identity.challenges import Challenge, challenge_in, with_more
from mcp_optimizer.identity.login import Login, advice
from mcp_optimizer.identity.oauth_client import TokenRefused, Tokens
from mcp_optimizer.identity.store import CLAIM, KeptLogin, LoginStore
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.upstream.authorization import LoginOffer
from mcp_optimizer.upstream.request_errors import LoginNeeded

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class RetryPause:
    """The growing pause after failures of one login."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._failure = ""

    @property
    def is_over(self) -> bool:
        """Whether the authorization server may be asked again."""
        return self._clock() >= self._not_before

    def check(self) -> None:
        """Raise the last failure if it is too early to ask again."""
        if not self.is_over:
            raise Unanswered(self._failure)

    def failed(self, failure: str) -> None:
        self._failure = failure
        self._not_before = self._clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def succeeded(self) -> None:
        self._pause, self._not_before = _FIRST_PAUSE, 0.0


logger = logging.getLogger(__name__)

_JUST_GIVEN = 5.0
"""Seconds for which a token that replaced a refused one is not replaced again: the next would be refused too."""

_LOOK = 0.1
_LOOK_FOR_LOGIN = 2.0
"""Seconds between two checks whether another process has refreshed, and whether one has logged in."""

_AS_A_CLIENT = {"accept": "application/json, text/event-stream"}
_HARMLESS = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

Offer = Callable[[], AbstractAsyncContextManager[LoginOffer]]


class ServerLogin:
    """The login to one server, as an `Authorization`. One object serves any number of concurrent requests."""

    def __init__(
        self, spec: ServerSpec, store: LoginStore, web: Web, offer: Offer, how: Callable[[], str] | None = None
    ) -> None:
        """`offer` begins a login that a person can make; `how` says how to log in, if not by the command."""
        self._spec = spec
        self._how = how or partial(advice, spec.name)
        self._offer = offer
        self.kept = KeptLogin(store)
        self._web = web
        self._challenge: Challenge | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._patience = RetryPause()
        self._replacement = ""
        self._insufficient: Login | None = None
        self._more: tuple[str, ...] = ()

    @property
    def challenge(self) -> Challenge:
        """The server's last challenge."""
        return self._challenge or Challenge()

    # Called by the transports.

    async def headers(self) -> Mapping[str, str]:
        """The header with the token: refreshed first if it has expired, or in the background if it soon will."""
        login = await self.current()
        if self._has_account and (login is None or login.is_expired(time.time())):
            await self._renewed(login)
            login = self.kept.login
        if login is None or login.tokens is None:
            if self._challenge is None:
                # Send the request without a token: the refusal says what the server requires.
                return {}
            if (login := await self.kept.another()) is None:
                raise self._needed()
        assert login.tokens is not None
        now = time.time()
        can_renew = (bool(login.tokens.refresh) or self._has_account) and not login.is_over
        if login.is_expired(now):
            if can_renew:
                await self._renewed(login)
            elif await self.kept.another() is None:
                raise self._needed(login.error or "it has expired")
        elif can_renew and login.is_stale(now) and self._patience.is_over:
            self._renewing(login)
        return self.kept.login.headers if self.kept.login is not None else {}

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """Whether another token is worth another attempt."""
        challenge = challenge_in(challenges)
        if status == 403:
            if challenge is None or not challenge.wants_more_scopes:
                return False
            return await self._need_scopes(challenge, sent)
        if status != 401 or (challenge is None and self._spec.auth.kind is AuthKind.AUTO and self.kept.login is None):
            return False
        login = self.kept.login
        if login is not None and login.tokens is not None and not login.is_over:
            if self._has_other_than(sent):
                return True
            is_new = login.tokens.access == self._replacement and time.time() - login.given_at < _JUST_GIVEN
            if (login.tokens.refresh or self._has_account) and not is_new:
                await self._renewed(login)
                self._replacement = self.kept.login.tokens.access if self.kept.login and self.kept.login.tokens else ""
                return True
        if not self._has_account and await self._finds_other_than(sent):
            return True
        self._challenge = challenge or Challenge()
        if self._has_account:
            if login is None:
                await self._renewed(None)
                return True
            raise LoginFailed("it refuses the token that its authorization server gave; check scopes and resource")
        raise self._needed("it refuses the token" if login is not None else "")

    async def missing(self) -> str:
        """Why a login has to be made first, as far as that is known without asking the server; empty if it is not."""
        login = await self.current()
        if self._has_account:
            return ""
        if login is None or login.tokens is None:
            return self._needed().message if self._spec.auth.kind is AuthKind.OAUTH else ""
        if login.is_over or (login.is_expired(time.time()) and not login.tokens.refresh):
            return self._needed(login.error or "it has expired").message
        return ""

    async def until_login(self) -> None:
        """Wait until a person has logged in, in this or another process that shares the store."""
        while True:
            self.kept.has_changed.clear()
            stored = await self.kept.read()
            if stored is not None and stored.can_replace(self._insufficient):
                self._take(stored)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.kept.has_changed.wait(), _LOOK_FOR_LOGIN)

    async def has_another(self) -> bool:
        """Whether a person has logged in since the last login was missing or refused."""
        login = self.kept.login
        if login is None or not login.can_replace(self._insufficient):
            login = await self.kept.read()
        return login is not None and login.can_replace(self._insufficient)

    def secrets(self) -> Mapping[str, str]:
        """The tokens, which must be removed from the server's texts."""
        return self.kept.secrets

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """Offer a login that can be made while the context is open."""
        return self._offer()

    # Called by `logins`.

    async def demanded(self) -> Challenge:
        """What the server demands of a login: as it said last, or says now to a request without a token. Before a
        caller's first login, nothing has been sent for that caller.
        """
        if self._challenge is not None:
            return self._challenge
        try:
            reply = await self._web.post_json(self._spec.url, _HARMLESS, _AS_A_CLIENT)
        except OptimizerError:
            # What can be found without its answer is looked for next.
            return Challenge()
        found = challenge_in(reply.challenges) if reply.status == 401 else None
        return found or Challenge()

    async def current(self) -> Login | None:
        """The login as this process knows it."""
        return await self.kept.current()

    async def keep(self, login: Login) -> None:
        """Store the login that a person made."""
        self._challenge = None
        self._patience.succeeded()
        await self.kept.keep(login)

    async def forget(self) -> bool:
        """Delete the login, because the person logged out."""
        return await self.kept.forget()

    async def close(self) -> None:
        await self.kept.close()

    # Renewing.

    @property
    def _has_account(self) -> bool:
        return self._spec.auth.kind is AuthKind.CLIENT_CREDENTIALS

    async def _renewed(self, login: Login | None) -> None:
        """Wait for a new token; concurrent calls wait for the same one."""
        await asyncio.shield(self._renewing(login))

    def _renewing(self, login: Login | None) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            work = self._get_account_token() if self._has_account else self._refresh(login)
            self._refreshing = self.kept.tasks.spawn(work)
        return self._refreshing

    async def _refresh(self, old: Login | None) -> None:
        assert old is not None
        assert old.tokens is not None
        self._patience.check()
        if not await self._claimed(old):
            return
        try:
            tokens = await old.endpoint(self._spec.auth).for_refresh(self._web, old.tokens.refresh)
        except TokenRefused as refusal:
            over = replace(old, is_over=True, error=str(refusal), given_at=old.given_at)
            was_ours = await self.kept.replace(old, over)
            await self.kept.store.release()
            if not was_ours:
                return
            logger.warning("Server %s: %s. %s", self._spec.name, refusal, self._how())
            raise self._needed(str(refusal)) from None
        except OptimizerError as failure:
            await self._later(failure)
            raise
        await self._renew(old, tokens)

    async def _claimed(self, old: Login) -> bool:
        """Claim the refresh. False if another process has just refreshed; its tokens are taken over."""
        give_up = time.monotonic() + CLAIM + 5
        while True:
            if not await self._is_still(old):
                return False
            if await self.kept.store.claim():
                return await self._is_still_ours(old)
            if time.monotonic() > give_up:
                raise Unanswered("another process has been refreshing its token for too long")
            await asyncio.sleep(_LOOK)

    async def _is_still_ours(self, old: Login) -> bool:
        """Look once more after the claim: another process may have refreshed, and ended its claim, since our last look.
        Sending a refresh token twice can end the login.
        """
        is_still = False
        try:
            is_still = await self._is_still(old)
        finally:
            if not is_still:
                await self.kept.store.release()
        return is_still

    async def _is_still(self, old: Login) -> bool:
        """Whether this is the login in the store. Otherwise takes over that one; raises LoginNeeded if it is no use."""
        stored = await self.kept.read()
        if stored is None:
            self.kept.lose()
            raise self._needed("it was logged out")
        if stored.tokens is not None and stored.tokens != old.tokens:
            self._take(stored)
            return False
        if stored.is_over:
            self.kept.take(stored)
            raise self._needed(stored.error)
        return True

    async def _renew(self, old: Login, tokens: Tokens) -> None:
        assert old.tokens is not None
        self._patience.succeeded()
        await self.kept.replace(old, old.with_tokens(tokens.after(old.tokens), time.time()))
        await self.kept.store.release()

    async def _later(self, failure: OptimizerError) -> None:
        self._patience.failed(str(failure))
        await self.kept.store.release()
        self.kept.note_error(str(failure))

    async def _get_account_token(self) -> None:
        """Get a token with the gateway's own credentials."""
        self._patience.check()
        from mcp_optimizer.identity.discovery import account_login

        try:
            login = await account_login(self._spec, self.challenge, self._more, self._web)
        except OptimizerError as failure:
            await self._later(failure)
            raise
        self._take(login)

    async def _need_scopes(self, challenge: Challenge, sent: Mapping[str, str]) -> bool:
        """Handle a call that needs more scopes than the login has; returns whether to try again."""
        login = self.kept.login
        wanted = challenge.scopes or ()
        self._challenge = challenge
        if self._has_account:
            has_all = login is not None and set(wanted) <= set(login.scopes)
            if has_all or self._spec.auth.scopes:
                # The entry names all scopes that the account may have.
                return False
            self._more = with_more(login.scopes if login is not None else (), wanted)
            await self._renewed(login)
            return True
        if await self._finds_other_than(sent):
            return True
        login = self.kept.login
        if login is not None and not set(wanted) <= set(login.wanted):
            await self.kept.replace(login, replace(login, wanted=with_more(login.wanted, wanted)))
        self._insufficient = self.kept.login
        permissions = f" ({', '.join(wanted)})" if wanted else ""
        raise LoginNeeded(f"the call needs more permissions than its login has{permissions}: {self._how()}")

    # Helpers.

    async def _finds_other_than(self, sent: Mapping[str, str]) -> bool:
        # A login that another call has found meanwhile counts, too.
        await self.kept.another()
        return self._has_other_than(sent)

    def _has_other_than(self, sent: Mapping[str, str]) -> bool:
        """Whether the current token differs from the one that was sent."""
        login = self.kept.login
        return login is not None and login.headers.get("authorization") not in (None, dict(sent).get("authorization"))

    def _take(self, login: Login) -> None:
        self._patience.succeeded()
        self.kept.take(login)

    def _needed(self, reason: str = "") -> LoginNeeded:
        self._insufficient = self.kept.login
        return LoginNeeded(f"login needed{f' ({reason})' if reason else ''}: {self._how()}")
