"""Exchanges the tokens of callers for tokens of servers: RFC 8693, Entra's on-behalf-of, or enterprise-managed
authorization (ID-JAG).

Each caller has one exchange at each server, which caches what it got until shortly before that ends, in memory, and for
other gateways on the same database (`caller_tokens`). One exchange serves all calls of a caller; other callers and
servers do not wait for it. A refused exchange is tried again with another token of the caller, or after a growing
pause. Used by the HTTP transports as their `Authorization`, and by `logins`. No server gets the caller's own token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from urllib.parse import urlsplit

from mcp_optimizer.config.serverfile.spec import AuthSpec, ExchangeKind, ServerSpec
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.identity.caller_tokens import CallerTokens, Given, NotShared, Shared, SharedTokens, Sweep
from mcp_optimizer.identity.challenges import challenge_in
from mcp_optimizer.identity.oauth_client import ClientId, TokenEndpoint, Tokens, client_method
from mcp_optimizer.identity.server_login import RetryPause
from mcp_optimizer.identity.store import SecretRows
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, checked
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.authorization import LoginOffer
from mcp_optimizer.upstream.request_errors import LoginNeeded

logger = logging.getLogger(__name__)

_MOST_CALLERS = 10_000
_MOST_AT_ONCE = 20
"""Exchanges at one authorization server at a time: a slow one must not take all connections."""
_LONGEST = 15.0
"""Seconds that an exchange may take at one authorization server."""
_LONGEST_WAIT = 30.0
"""Seconds that it waits for its turn there: hundreds of callers may come at once."""
_METADATA = 900.0
"""Seconds for which the metadata of an authorization server are cached."""
_JUST_GIVEN = 5.0
"""Seconds for which a token that replaced a refused one is not replaced again: the next would be refused too."""
_EARLIER = 4


class Turns:
    """Who may ask an authorization server now, of all entries that name it."""

    def __init__(self, most: int = _MOST_AT_ONCE, longest: float = _LONGEST) -> None:
        """`longest`: seconds of a turn."""
        self._most = most
        self._longest = longest
        self._of: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def at(self, provider: str) -> AsyncIterator[None]:
        """A turn at this authorization server while the context is open; raises Unanswered if it takes too long."""
        turns = self._of.setdefault(provider, asyncio.Semaphore(self._most))
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await turns.acquire()
        except TimeoutError:
            raise Unanswered(f"too many exchanges wait for the authorization server {provider}") from None
        try:
            async with asyncio.timeout(self._longest):
                yield
        except TimeoutError:
            raise Unanswered(
                f"the authorization server {provider} does not answer within {self._longest:g} s"
            ) from None
        finally:
            turns.release()


class ExchangeProvider:
    """The authorization servers at which tokens are exchanged for one entry."""

    def __init__(self, auth: AuthSpec, url: str, web: Web, turns: Turns) -> None:
        """`url`: the server's address."""
        assert auth.exchange is not None
        self._exchange = exchange = auth.exchange
        self._auth = auth
        self._url = url
        self._web = web.named_by(exchange.provider, exchange.token_url)
        self._web_of_server = web.named_by(auth.issuer)
        self._turns = turns
        self._found: dict[str, tuple[float, str, tuple[str, ...]]] = {}
        """By issuer: until when its metadata are used, its token endpoint, and how clients may authenticate there."""

    async def exchanged(self, token: str) -> Tokens:
        """The token of the server for a caller's token. Raises Unanswered, or LoginFailed if it is refused."""
        exchange = self._exchange
        async with self._turns.at(exchange.provider):
            endpoint = await self._endpoint()
            if exchange.kind is not ExchangeKind.ID_JAG:
                return await endpoint.for_caller(self._web, token, exchange)
            audience = exchange.audience or self._auth.issuer
            assertion = await endpoint.assertion_for_caller(self._web, token, exchange, audience)
        async with self._turns.at(self._auth.issuer):
            endpoint = await self._endpoint_of_server()
            return await endpoint.for_assertion(self._web_of_server, assertion, self._auth.scopes)

    async def _endpoint(self) -> TokenEndpoint:
        exchange = self._exchange
        methods: tuple[str, ...] = ()
        place = exchange.token_url
        if not place:
            place, methods = await self._discovered(exchange.issuer, self._web)
        checked(place)
        client = ClientId(exchange.client_id, exchange.client_secret, client_method(exchange, methods))
        issuer = exchange.provider
        return TokenEndpoint(place, issuer, client, self._resource, exchange.private_key, exchange.algorithm)

    async def _endpoint_of_server(self) -> TokenEndpoint:
        """The server's own authorization server. The entry names it, and never the server, which could name one that
        collects assertions.
        """
        auth = self._auth
        place, methods = await self._discovered(auth.issuer, self._web_of_server)
        checked(place)
        client = ClientId(auth.client_id, auth.client_secret, client_method(auth, methods))
        return TokenEndpoint(place, auth.issuer, client, self._resource, auth.private_key, auth.algorithm)

    async def _discovered(self, issuer: str, web: Web) -> tuple[str, tuple[str, ...]]:
        until, place, methods = self._found.get(issuer, (float("-inf"), "", ()))
        if time.monotonic() >= until:
            # In a thread, because this imports half of the SDK.
            discovery = await asyncio.to_thread(import_module, "mcp_optimizer.identity.discovery")
            place, methods = await discovery.token_endpoint(issuer, web)
            self._found[issuer] = (time.monotonic() + _METADATA, place, methods)
        return place, methods

    @property
    def _resource(self) -> str:
        exchange = self._exchange
        if (said := self._auth.resource or exchange.resource) or exchange.kind is ExchangeKind.ON_BEHALF_OF:
            return said
        if exchange.audience and exchange.kind is ExchangeKind.STANDARD:
            return ""
        # Without the password and the query, which may contain a key.
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class TokenExchange:
    """The exchanges of one caller at one server, as an `Authorization`."""

    def __init__(
        self,
        spec: ServerSpec,
        caller: str,
        tokens: CallerTokens,
        provider: ExchangeProvider,
        tasks: BackgroundTasks,
        patience: RetryPause,
        shared: Shared,
    ) -> None:
        self.spec = spec
        self._shared = shared
        self._caller = caller
        self._tokens = tokens
        self._provider = provider
        self._tasks = tasks
        self._given: Given | None = None
        self._replacement: Given | None = None
        """What replaced a token that the server refused."""
        self._earlier: deque[str] = deque(maxlen=_EARLIER)
        self._exchanging: asyncio.Task[None] | None = None
        self._patience = patience
        self._refusal = ""
        """Why the last exchange was refused."""
        self._refused = b""
        """The digest of the caller's token that was refused."""
        self._changed = asyncio.Event()
        self._waits = False
        """Whether the server waits for another exchange to be worth an attempt."""

    # Called by the transports.

    async def headers(self) -> Mapping[str, str]:
        """The header with the server's token: exchanged first if there is none, or in the background before it ends."""
        given, now = self._given, time.time()
        if given is None or given.is_over(now):
            await self._renewed()
        elif given.is_stale(now) and self._patience.is_over and self._tokens.of(self._caller):
            self._renewing()
        assert self._given is not None
        return self._given.headers

    async def refused(self, status: int, challenges: str, sent: Mapping[str, str]) -> bool:
        """Whether another token is worth another attempt."""
        challenge = challenge_in(challenges)
        if status == 403 and challenge is not None and challenge.wants_more_scopes:
            wanted = f" ({', '.join(challenge.scopes)})" if challenge.scopes else ""
            raise LoginFailed(
                f"the call needs more permissions than the exchanged token has{wanted}: the operator can name them in "
                "scopes of the exchange"
            )
        if status != 401:
            return False
        given = self._given
        if given is not None and given.headers["authorization"] != dict(sent).get("authorization"):
            # Another call has got a new one meanwhile.
            return True
        if given is None or given is not self._replacement or time.time() - given.at > _JUST_GIVEN:
            self._drop()
            await self._renewed()
            self._replacement = self._given
            return True
        raise LoginFailed(
            f"it refuses the token that {self._provider_name} gave for this caller; check audience, resource and "
            "scopes of the exchange"
        )

    def secrets(self) -> Mapping[str, str]:
        """The tokens, which must be removed from the server's texts."""
        found = {f"earlier token {number}": token for number, token in enumerate(self._earlier, 1)}
        if self._given is not None:
            found["token"] = self._given.tokens.access
        if own := self._tokens.of(self._caller):
            found["caller's token"] = own
        return found

    async def missing(self) -> str:
        """Why the caller has to send a token first; empty if it need not."""
        has_one = self._tokens.of(self._caller) or (self._given is not None and not self._given.is_over(time.time()))
        return "" if has_one else _NOTHING_TO_EXCHANGE

    async def until_login(self) -> None:
        """Wait until another exchange is worth an attempt."""
        self._waits = True
        try:
            while not self._is_worth_trying:
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._waits = False

    async def has_another(self) -> bool:
        """Whether another exchange is worth an attempt."""
        if self._is_worth_trying:
            self._changed.set()
        return self._is_worth_trying

    def offered(self) -> AbstractAsyncContextManager[LoginOffer]:
        """Raises ConfigurationError: nobody can log in here."""
        raise ConfigurationError("There is no login to make: the caller's own token is exchanged.")

    # Called by `Exchanges`.

    def request_came(self) -> None:
        """The caller has sent a request, maybe with another token."""
        if self._waits and self._is_worth_trying:
            self._changed.set()

    # Exchanging.

    @property
    def _provider_name(self) -> str:
        auth = self.spec.auth
        return auth.issuer or (auth.exchange.provider if auth.exchange is not None else "")

    @property
    def _is_worth_trying(self) -> bool:
        token = self._tokens.of(self._caller)
        return bool(token) and (not self._refusal or _digest(token) != self._refused or self._patience.is_over)

    async def _renewed(self) -> None:
        """Wait for a new token; concurrent calls wait for the same one."""
        await asyncio.shield(self._renewing())

    def _renewing(self) -> asyncio.Task[None]:
        if self._exchanging is None or self._exchanging.done():
            self._exchanging = self._tasks.spawn(self._exchange())
        return self._exchanging

    async def _exchange(self) -> None:
        token = self._tokens.of(self._caller)
        if not token:
            raise LoginNeeded(_NOTHING_TO_EXCHANGE)
        self._check_pause(token)
        try:
            given = await self._shared.found(self._is_better)
            if given is None:
                given = Given(await self._asked(token), time.time())
                await self._shared.leave(given)
        finally:
            await self._shared.release()
        self._patience.succeeded()
        self._refusal, self._refused = "", b""
        self._drop()
        self._given = given

    async def _asked(self, token: str) -> Tokens:
        try:
            return await self._provider.exchanged(token)
        except Unanswered as failure:
            why = f"{_FAILED}: {failure}"
            self._patience.failed(why)
            raise Unanswered(why) from None
        except LoginFailed as refusal:
            self._refuse(token, str(refusal))
            raise LoginNeeded(self._refusal) from None

    def _is_better(self, found: Given) -> bool:
        """Whether what another gateway got is worth an attempt: it is not what the server refused here."""
        return not found.is_stale(time.time()) and found.tokens.access not in self._earlier

    def _drop(self) -> None:
        if self._given is not None:
            self._earlier.append(self._given.tokens.access)
        self._given = None

    def _check_pause(self, token: str) -> None:
        """Raise the last failure if it is too early to try again."""
        if not self._refusal:
            self._patience.check()
        elif _digest(token) == self._refused and not self._patience.is_over:
            raise LoginNeeded(self._refusal)

    def _refuse(self, token: str, refusal: str) -> None:
        before, self._refusal = self._refusal, f"{_FAILED}: {refusal}"
        self._refused = _digest(token)
        self._patience.failed(self._refusal)
        self._tokens.refused(self._caller, token)
        if self._refusal != before:
            logger.warning("Server %s: %s", self.spec.name, self._refusal)


_FAILED = "the caller's token could not be exchanged"
_NOTHING_TO_EXCHANGE = (
    "it exchanges the caller's token, and that has ended or was not sent lately: send one with the next request"
)


class Exchanges:
    """All exchanges of a gateway."""

    def __init__(self, web: Web, clock: Callable[[], float] = time.monotonic, shared: SecretRows | None = None) -> None:
        """`shared`: where other gateways find what was got; None if there are none."""
        self._web = web
        self._rows = shared
        self._sweep = None if shared is None else Sweep(shared, clock)
        self._clock = clock
        self._tokens = CallerTokens(clock)
        self._providers: dict[str, tuple[AuthSpec, str, ExchangeProvider]] = {}
        """By server, with what each was made of."""
        self._turns = Turns()
        self._of: OrderedDict[str, dict[str, TokenExchange]] = OrderedDict()
        """By caller and server."""
        self._tasks = BackgroundTasks(logger, "A token could not be exchanged", (OptimizerError, LoginNeeded))

    def note(self, principal: Principal, token: str) -> None:
        """A verified caller has sent this token."""
        self._tokens.note(principal, token)
        for one in self._of.get(principal.id, {}).values():
            one.request_came()

    def of(self, spec: ServerSpec, principal: Principal) -> TokenExchange:
        """A caller's exchange at a server."""
        provider = self._provider(spec)
        mine = self._of.setdefault(principal.id, {})
        self._of.move_to_end(principal.id)
        while len(self._of) > _MOST_CALLERS:
            self._of.popitem(last=False)
        known = mine.get(spec.name)
        if known is None or (known.spec.auth, known.spec.url) != (spec.auth, spec.url):
            known = mine[spec.name] = TokenExchange(
                spec,
                principal.id,
                self._tokens,
                provider,
                self._tasks,
                RetryPause(self._clock),
                self._shared(spec, principal),
            )
        return known

    def _shared(self, spec: ServerSpec, principal: Principal) -> Shared:
        if self._rows is None or self._sweep is None:
            return NotShared()
        return SharedTokens(spec, principal, self._rows, self._sweep)

    def forget(self, server: str) -> None:
        """Drop the tokens of a server that was removed, or whose name now means another one."""
        self._providers.pop(server, None)
        for mine in self._of.values():
            mine.pop(server, None)

    async def close(self) -> None:
        self._tokens.close()
        self._of.clear()
        await self._tasks.close()

    def _provider(self, spec: ServerSpec) -> ExchangeProvider:
        assert spec.auth.exchange is not None
        known = self._providers.get(spec.name)
        if known is None or known[:2] != (spec.auth, spec.url):
            made = ExchangeProvider(spec.auth, spec.url, self._web, self._turns)
            known = self._providers[spec.name] = spec.auth, spec.url, made
        return known[2]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
