"""Signs people in to the dashboard at a token issuer: OpenID Connect, with an authorization code and PKCE.

Nothing is kept at the gateway between the begin and the return, so a visitor cannot fill anything, and a sign-in that
begins at one gateway ends at any other: state, nonce and verifier are derived from a secret that the browser keeps.
What comes of it is what the ID token says, from which `person` makes the same principal as from that person's other
tokens. Loaded only if the settings let people sign in at an issuer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from mcp_optimizer.access.callers.claims import principal_of
from mcp_optimizer.access.callers.keys import CannotVerify, Rejected, ScopesMissing
from mcp_optimizer.access.callers.signed_tokens import KeySet, SignedTokens
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.credentials import DashboardLogin, TokenIssuer
from mcp_optimizer.identity.oauth_client import (
    BASIC,
    NONE,
    POST,
    Attempt,
    ClientId,
    Provider,
    TokenEndpoint,
    parameters,
)
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web
from mcp_optimizer.runtime.patterns import regex

logger = logging.getLogger(__name__)

SECONDS = 600
"""Seconds that a person may take at the issuer."""

_CLOCKS_DIFFER = 60
_KEPT = regex(r"([a-z0-9][a-z0-9-]{0,31})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_MOST_AT_ONCE = 20
"""Answers that are exchanged at a time, because anyone can send made-up ones."""

_METADATA_LAST = 600.0
_ASK_AGAIN = 5.0
"""Seconds for which an issuer that did not answer is not asked again."""

_LONGEST_PERSON = 65_536
_OF_THE_TOKEN = frozenset("aud exp iat nbf jti nonce auth_time at_hash c_hash s_hash sid azp scp".split())
"""Claims that say nothing of the person."""


class Begun(NamedTuple):
    """A sign-in that a browser may finish."""

    address: str
    """Where it goes now."""
    kept: str
    """What it keeps until it returns."""


@dataclass(frozen=True)
class Person:
    """What an issuer says about somebody who signed in."""

    principal: Principal
    text: str
    """The same, to be stored."""
    lasts: float
    """Seconds."""
    answer: str
    """Identifies the answer, which is good for one sign-in."""


@dataclass(frozen=True)
class _SignInAttempt(Attempt):
    """An attempt to sign in to the gateway itself."""

    nonce: str = ""

    @property
    def asked(self) -> dict[str, str]:
        asked = {**super().asked, "nonce": self.nonce}
        # Some issuers refuse a request that names a resource besides the client itself.
        del asked["resource"]
        return asked


class CompanySignIn:
    """The sign-ins at one issuer."""

    def __init__(
        self,
        issuer: TokenIssuer,
        login: DashboardLogin,
        web: Web,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = issuer.name
        self.title = login.title or issuer.name
        self._issuer, self._login, self._clock = issuer, login, clock
        self._web = web.named_by(issuer.issuer, issuer.jwks_url)
        self._scopes = tuple(dict.fromkeys(["openid", *login.scopes, *issuer.required_scopes]))
        # An ID token is for the client and has no scopes; those that were granted come beside it.
        of_id_tokens = issuer.model_copy(update={"audience": login.client_id, "required_scopes": ()})
        self._id_tokens = SignedTokens(of_id_tokens, KeySet(issuer, web))
        self._provider: tuple[float, Provider] | None = None
        self._failed: tuple[float, Unanswered] | None = None
        self._finding = asyncio.Lock()
        self._under_way = 0

    async def begin(self, redirect_uri: str) -> Begun:
        """A new sign-in that returns to an address of ours; raises Unanswered or LoginFailed."""
        kept = f"{self.name}.{int(self._clock())}.{secrets.token_urlsafe(32)}"
        return Begun(self._attempt(await self._found(), kept, redirect_uri).address, kept)

    async def finish(self, kept: str, redirect: str, redirect_uri: str) -> Person:
        """Who has returned from the issuer, by the address of the return. Raises Rejected or LoginFailed if it is not
        the answer to a sign-in of this browser or says nothing valid, CannotVerify or Unanswered if that is not known.
        """
        self._check_is_ours(kept, redirect)
        async with self._place():
            provider = await self._found()
            attempt = self._attempt(provider, kept, redirect_uri)
            code, client = attempt.code_in(redirect), attempt.client
            endpoint = TokenEndpoint(provider.token_endpoint, provider.issuer, client, "")
            token, granted = await endpoint.identity_for_code(self._web, code, attempt.verifier, redirect_uri)
            said = (await self._id_tokens.principal(token, self._login.client_id)).claims
        self._check_is_for_us(said, attempt.nonce)
        scopes = self._scopes if granted is None else granted
        claims = {name: value for name, value in said.items() if name not in _OF_THE_TOKEN}
        claims["scope"] = " ".join(scopes)
        text = json.dumps({"issuer": self._issuer.issuer, "claims": claims}, sort_keys=True)
        if len(text) > _LONGEST_PERSON:
            raise Rejected("The ID token says too much: let its issuer leave out claims that are not needed.")
        return Person(self.person(claims), text, self._login.hours * 3_600, attempt.state)

    def person(self, claims: Mapping[str, Any]) -> Principal:
        """The person of whom the issuer said this; raises Rejected if the settings no longer permit it."""
        try:
            return principal_of(claims, self._issuer)
        except ScopesMissing as missing:
            raise Rejected(f"{self.title} did not grant the scopes {', '.join(missing.scopes)}.") from None

    async def close(self) -> None:
        await self._id_tokens.close()

    def _check_is_ours(self, kept: str, redirect: str) -> None:
        match = _KEPT.fullmatch(kept)
        age = self._clock() - int(match.group(2)) if match is not None else SECONDS + 1
        if match is None or match.group(1) != self.name or not -_CLOCKS_DIFFER <= age <= SECONDS:
            raise Rejected(f"This sign-in did not begin in this browser, or took over {SECONDS // 60} minutes.")
        given = parameters(redirect)
        if not hmac.compare_digest(given.get("state", "").encode(), _derived("state", kept).encode()):
            raise Rejected("This is the answer to another sign-in. One that begins ends those that began before it.")
        if not given.get("code") and not given.get("error"):
            raise Rejected(f"The answer of {self.title} has no code.")

    def _check_is_for_us(self, claims: Mapping[str, Any], nonce: str) -> None:
        said = claims.get("nonce")
        if not isinstance(said, str) or not hmac.compare_digest(said.encode("utf-8", "replace"), nonce.encode()):
            raise Rejected("The ID token is the answer to another sign-in (its nonce does not match).")
        audiences, party = claims.get("aud"), claims.get("azp")
        is_shared = isinstance(audiences, list) and len(audiences) > 1
        if (party is not None or is_shared) and party != self._login.client_id:
            raise Rejected("The ID token was given to another client (azp).")

    def _attempt(self, provider: Provider, kept: str, redirect_uri: str) -> _SignInAttempt:
        state, verifier, nonce = (_derived(name, kept) for name in ("state", "verifier", "nonce"))
        client = ClientId(self._login.client_id, self._login.client_secret, self._method(provider))
        return _SignInAttempt(provider, client, redirect_uri, self._scopes, state, verifier, nonce)

    def _method(self, provider: Provider) -> str:
        if not self._login.client_secret:
            return NONE
        return POST if POST in provider.auth_methods and BASIC not in provider.auth_methods else BASIC

    async def _found(self) -> Provider:
        """The issuer's endpoints, which are asked for anew every ten minutes. Old ones serve while it is away."""
        async with self._finding:
            known = self._provider
            if known is not None and 0 <= self._clock() - known[0] < _METADATA_LAST:
                return known[1]
            if self._failed is not None and 0 <= self._clock() - self._failed[0] < _ASK_AGAIN:
                if known is None:
                    raise Unanswered(str(self._failed[1]))
                return known[1]
            # In a thread, because this imports half of the SDK.
            discovery = await asyncio.to_thread(import_module, "mcp_optimizer.identity.discovery")
            try:
                found: Provider = await discovery.sign_in_provider(self._issuer.issuer, self._scopes, self._web)
            except Unanswered as error:
                self._failed = (self._clock(), error)
                if known is None:
                    raise
                logger.warning("The metadata of %r cannot be read again: %s", self.name, error)
                return known[1]
            self._provider = (self._clock(), found)
            return found

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._under_way >= _MOST_AT_ONCE:
            raise CannotVerify("Too many people are signing in at this moment. Try again shortly.")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


class CompanySignIns:
    """The issuers at which people may sign in."""

    def __init__(self, issuers: Mapping[str, CompanySignIn] | None = None) -> None:
        """`issuers`: by the address of the issuer."""
        self._by_issuer = dict(issuers or {})
        self._by_name = {one.name: one for one in self._by_issuer.values()}

    @property
    def titles(self) -> Mapping[str, str]:
        """What people call each issuer, by its name."""
        return {name: one.title for name, one in self._by_name.items()}

    def named(self, name: str) -> CompanySignIn | None:
        return self._by_name.get(name)

    def of(self, kept: str) -> CompanySignIn | None:
        """Where a sign-in began, by what the browser keeps."""
        return self._by_name.get(kept.partition(".")[0])

    def person(self, text: str) -> Principal:
        """A person who signed in before; raises Rejected if the settings no longer permit it."""
        try:
            said = json.loads(text)
            known, claims = self._by_issuer.get(said["issuer"]), dict(said["claims"])
        except (ValueError, TypeError, KeyError):
            known, claims = None, {}
        if known is None:
            raise Rejected("Nobody signs in there any more.")
        return known.person(claims)

    async def close(self) -> None:
        for one in self._by_issuer.values():
            await one.close()


def _derived(name: str, kept: str) -> str:
    """A value that only the browser that keeps this leads to, and from which it cannot be found."""
    return base64.urlsafe_b64encode(hashlib.sha256(f"{name}\n{kept}".encode()).digest()).decode().rstrip("=")


def reason(failure: Exception) -> str:
    """Why a sign-in failed, as a sentence."""
    text = str(failure)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


FAILURES = (Rejected, LoginFailed)
"""A sign-in cannot be finished."""

NOT_NOW = (CannotVerify, Unanswered)
"""It is not known whether it can."""
