"""Answers every request except those for tools, from all servers, as raw objects whose contents are not checked.

A middleware of the MCP server. Translates clients' names and URIs to the server's own, and back in results.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.methods import CLIENT_REQUESTS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.access.audit.recording import recording, used_by
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import LOCAL, Caller, Principal
from mcp_optimizer.domain.extensions import PAGE_SCHEME
from mcp_optimizer.errors import OptimizerError, UpstreamError, UpstreamRefusal
from mcp_optimizer.gateway.app_pages import AppPages
from mcp_optimizer.gateway.skills import Skills
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.metadata import without_ours
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.messages import as_mcp_error, for_era, record_denial, renamed
from mcp_optimizer.serving.relay.changes import Changes, Subscriptions, Watches
from mcp_optimizer.serving.relay.connected import Client, Clients, Context, Middleware
from mcp_optimizer.serving.relay.directory import Allowed, Directories, Directory, FollowedDirectory
from mcp_optimizer.serving.relay.listings import (
    KINDS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    ListingKind,
    ListMemory,
    MemoryOfShared,
    page,
)
from mcp_optimizer.serving.relay.places import PlacedBus
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

REGISTERED: Mapping[str, type[types.RequestParams]] = {
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
}
"""Methods that must be registered with the SDK so that their capability is announced."""

_LISTS = frozenset(kind.method for kind in KINDS)


class StartPatience(Protocol):
    """How long the first requests of clients wait while servers start."""

    async def settled(self) -> None:
        """Wait until servers have started, for a request that may concern any of them."""

    async def lists(self, is_early: Callable[[], bool], recalled: Callable[[], Awaitable[None]]) -> float | None:
        """Wait for a list of prompts or resources that may include entries of servers whose entries are unknown.
        Returns the seconds left for the list; None: as many as usual.
        """

    async def own(self, caller: Caller) -> None:
        """Wait until the own servers of a caller that has just arrived have started."""

    async def until_up(self, server: str, caller: Caller) -> None:
        """Wait for the starting server that a request concerns. Raises StillStarting."""

    async def tools(self) -> None:
        """Wait for a request that lists all tools."""


Handler = Callable[[Context, Mapping[str, Any]], Awaitable[dict[str, Any]]]

Permits = Callable[[Caller, str], bool]
"""Whether a caller may use a server's resources and prompts."""

OwnStates = Callable[[Principal], Mapping[str, UpstreamState] | None]
"""The servers as they are for a caller; None for a caller with no server of its own."""

Hidden = Callable[[str, Allowed], str | None]
"""The server that an unresolved name refers to, if that server does not exist for the caller."""


def _everywhere(_caller: Caller, _server: str) -> bool:
    return True


def _freely(_caller: Caller) -> None:
    """No limit."""


class Relay:
    """Handles resources, prompts, completion, log levels and subscriptions."""

    def __init__(
        self,
        pool: UpstreamPool,
        states: Callable[[], Mapping[str, UpstreamState]],
        tools_ready: Callable[[], Coroutine[Any, Any, None]] | None = None,
        first_start: StartPatience | None = None,
        limits: Limits = DEFAULT_LIMITS,
        permits: Permits = _everywhere,
        trail: AuditTrail | None = None,
        take_turn: Callable[[Caller], None] = _freely,
        name_question: Callable[[], str] | None = None,
        memory: ListMemory | None = None,
        pages: AppPages | None = None,
        skills: Skills | None = None,
        own_states: OwnStates | None = None,
    ) -> None:
        """`permits` says which servers a caller may use; `name_question` makes ids for questions to legacy clients.

        `take_turn` counts a request that is passed on; raises TooManyCalls.

        `tools_ready` waits until changed tools can be listed, before clients are notified.

        `first_start` waits until servers are up, at the first start only: many clients ask immediately.

        `memory` stores what servers listed at earlier starts. `pages` and `skills`: which servers have which.

        `own_states` has the servers as they are for a caller; None for a caller with no server of its own.
        """
        self._own_states = own_states or (lambda _principal: None)
        self._states = states
        self._memory = memory
        self._pages = pages
        self._skills = skills
        self._pool = pool
        self._trail = trail
        self._limits = limits
        self._permits = permits
        self._take_turn = take_turn
        self.first_start = first_start or _NoWaiting()
        self._tools_ready = tools_ready
        self.bus = bus = PlacedBus()
        self.clients = Clients(self._client_left, limits, name_question)
        self.changes = Changes(bus, self.clients)
        self._told = frozenset({"prompts", "resources"} | ({"tools"} if tools_ready is not None else set()))
        shared = Directory(
            states,
            lambda server, method, params: pool.call(server, method, params, LOCAL),
            limits,
            self.changes.announce,
            memory,
            self._owners,
        )
        self._directories = Directories(FollowedDirectory(shared, self._told), self._make_own)
        watches = Watches(pool.watch_resource, pool.unwatch_resource, limits)
        self._subscriptions = Subscriptions(watches, self.clients, self.places, limits, trail, self._whose)
        self._telling_roots: dict[str, bool] = {}
        self._tasks = BackgroundTasks(logger, "A client's wish to be told of changes could not be carried out")
        self._handlers: dict[str, Handler] = {
            "prompts/list": lambda ctx, params: self._list(PROMPTS, ctx, params),
            "resources/list": lambda ctx, params: self._list(RESOURCES, ctx, params),
            "resources/templates/list": lambda ctx, params: self._list(TEMPLATES, ctx, params),
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
            "resources/subscribe": self._subscriptions.begin,
            "resources/unsubscribe": self._subscriptions.end,
            "logging/setLevel": self._set_level,
        }

    def _make_own(self, principal: Principal) -> FollowedDirectory | None:
        if self._own_states(principal) is None:
            return None
        caller = Caller(key=principal.id, principal=principal)
        own = Directory(
            lambda: self._own_states(principal) or self._states(),
            lambda server, method, params: self._pool.call(server, method, params, caller),
            self._limits,
            lambda kind: self.changes.announce(kind, whose=principal.id),
            MemoryOfShared(self._memory) if self._memory is not None else None,
            self._owners,
        )
        made = FollowedDirectory(own, self._told)
        for state in (self._own_states(principal) or {}).values():
            made.on_state(state)
        return made

    def _is_own(self, server: str) -> bool:
        """Whether a server acts as each caller."""
        state = self._states().get(server)
        return state is not None and state.spec.is_of_each_caller and self._own_states(LOCAL.principal) is not None

    def _whose(self, server: str, caller: Caller) -> str:
        """The caller whose own server this is, by id, or the client whose session no other client has, by key."""
        if self._is_own(server):
            return caller.principal.id
        return caller.link.key if caller.link is not None and self._pool.runs_for_each_client(server) else ""

    def _of(self, ctx: Context) -> FollowedDirectory:
        """The directory with what exists for the client of a request."""
        return self._directories.of(self.clients.caller(ctx).principal)

    def middleware(self, server_info: Callable[[], dict[str, Any]]) -> Middleware:
        """The middleware for the MCP server that identifies itself as `server_info`."""
        return partial(self._handle, server_info)

    def _handle(
        self, server_info: Callable[[], dict[str, Any]], ctx: Context, call_next: CallNext
    ) -> Awaitable[HandlerResult]:
        # Not a coroutine of its own: calls of tools only pass here.
        handler = self._handlers.get(ctx.method)
        if handler is not None and (ctx.method, ctx.protocol_version) in CLIENT_REQUESTS:
            return self._answer(server_info, ctx, handler)
        if ctx.method == "subscriptions/listen":
            return self._listen(ctx, call_next)
        if ctx.method == "notifications/roots/list_changed":
            return self._roots_changed(ctx, call_next)
        if ctx.method != "initialize":
            self._client_connected(ctx)
        return call_next(ctx)

    async def _answer(
        self, server_info: Callable[[], dict[str, Any]], ctx: Context, handler: Handler
    ) -> dict[str, Any]:
        result = await self._raw_answer(ctx, handler)
        ttl_ms = 0 if ctx.method == "resources/read" else None
        return for_era(result, ctx.protocol_version, server_info, ttl_ms=ttl_ms)

    async def _listen(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        self._client_connected(ctx)
        await self.first_start.own(self.clients.caller(ctx))
        await self._watched_are_up(ctx)
        return await self._subscriptions.listen(ctx, call_next)

    async def _roots_changed(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        await self._tell_roots(self.clients.link(ctx).key, ctx.method)
        return await call_next(ctx)

    async def _tell_roots(self, key: str, method: str) -> None:
        """Tell servers that a client's roots changed; changes that arrive meanwhile are sent once, afterwards."""
        if key in self._telling_roots:
            self._telling_roots[key] = True
            return
        try:
            while self._telling_roots.get(key, True):
                self._telling_roots[key] = False
                await self._pool.tell(key, method, None)
        finally:
            self._telling_roots.pop(key, None)

    def _client_connected(self, ctx: Context) -> None:
        """Register the client, because even one that only listens is notified of changes."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or self.clients.of(ctx) is not None:
            self._pool.client_connected(lambda: self.clients.link(ctx).lasting)

    async def _raw_answer(self, ctx: Context, handler: Handler) -> dict[str, Any]:
        """Answers from the raw request, which the gate has checked, with the raw result."""
        self._client_connected(ctx)
        try:
            await self.first_start.own(self.clients.caller(ctx))
            if ctx.method not in _LISTS:
                await self._until_up(ctx)
            return await handler(ctx, ctx.params or {})
        except OptimizerError as error:
            raise as_mcp_error(error) from error

    def _allowed(self, ctx: Context) -> Allowed:
        """Which servers exist for the client of a request."""
        return partial(self._permits, self.clients.caller(ctx))

    async def _until_up(self, ctx: Context) -> None:
        """Wait for the server that a request means; if that is unknown, for all servers in their first start."""
        awaited = await self._awaited(ctx, *_named(ctx.method, ctx.params or {}))
        caller = self.clients.caller(ctx)
        await (self.first_start.settled() if awaited is None else self.first_start.until_up(awaited, caller))

    async def _awaited(self, ctx: Context, key: str, named: Any) -> str | None:
        """The starting server that a name or URI refers to; None if there is none."""
        known = self._of(ctx)
        if not known.coming or not isinstance(named, str):
            return None
        find = known.directory.awaited_prompt if key == "name" else known.directory.awaited_resource
        return await find(named, self._allowed(ctx))

    async def _watched_are_up(self, ctx: Context) -> None:
        """Wait for the starting servers of the resources to listen for; those that do not come up are left out."""
        wanted = (ctx.params or {}).get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
        awaited = set[str]()
        with contextlib.suppress(OptimizerError):
            for uri in uris if isinstance(uris, list) and self._of(ctx).coming else []:
                if (server := await self._awaited(ctx, "uri", uri)) is not None:
                    awaited.add(server)
        up = partial(self.first_start.until_up, caller=self.clients.caller(ctx))
        await asyncio.gather(*map(up, awaited), return_exceptions=True)

    def _owners(self, uri: str) -> Collection[str]:
        """The servers to which a URI belongs whatever is listed: those of its page or skill."""
        if uri.startswith(PAGE_SCHEME):
            return self._pages.owners(uri) if self._pages is not None else ()
        return self._skills.owners(uri) if self._skills is not None else ()

    async def places(self, ctx: Context, uri: str) -> list[tuple[str, str]]:
        """Where the client of a request may read a URI: server and own URI, most likely first."""
        known = self._of(ctx).directory
        places = await known.resource(uri, self._allowed(ctx))
        if not places:
            self._record_denial(ctx, {"uri": uri}, known.hidden_resource)
        return places

    def _record_denial(self, ctx: Context, named: Mapping[str, str], hidden: Hidden) -> None:
        """Record a denial if what a client named was not found because its server does not exist for it."""
        if self._trail is None:
            return
        (name,) = named.values()
        if (server := hidden(name, self._allowed(ctx))) is not None:
            method = "resources/subscribe" if ctx.method == "subscriptions/listen" else ctx.method
            record_denial(self._trail, self.clients.caller(ctx), method, named, server)

    async def _list(self, kind: ListingKind, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        known, allowed = self._of(ctx).directory, self._allowed(ctx)
        left = await self.first_start.lists(lambda: bool(known.unknown(kind, allowed)), known.recalled)
        if left is not None:
            known.give_up(kind, allowed)
        found = await known.listed(kind, allowed, left)
        listed = page(found.entries, kind.result_key, params, lambda entry: entry.definition)
        return {**listed, "ttlMs": found.ttl_ms, "cacheScope": found.scope}

    async def _get_prompt(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        name = params["name"]
        self._pool.parked(self.clients.caller(ctx))
        known = self._of(ctx).directory
        place = await known.prompt(name, self._allowed(ctx))
        if place is None:
            self._record_denial(ctx, {"name": name}, known.hidden_prompt)
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt {name!r}: see prompts/list")
        server, own = place
        return await self._pass(ctx, server, {"name": own})

    async def _read(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        uri = params["uri"]
        refusal: UpstreamError | None = None
        parked = self._pool.parked(self.clients.caller(ctx))
        for server, own in await self.places(ctx, uri):
            if parked is not None and parked.server != server:
                continue
            try:
                result = await self.read_at(ctx, server, own)
            except UpstreamRefusal as error:
                refusal = refusal or error
                continue
            if self._pages is not None and own.startswith(PAGE_SCHEME):
                self._pages.was_read(self.clients.caller(ctx), server)
            return renamed(result, own, uri) if own != uri else result
        if refusal is not None:
            raise refusal
        raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})

    async def read_at(self, ctx: Context, server: str, own: str, *, with_client: bool = True) -> dict[str, Any]:
        """The result of a request about a resource at its server: of a skill only what its caller may read of it, and
        only what its server announced. `with_client`: the server may turn to the client, in a session of that client.
        """
        caller = self.clients.caller(ctx)
        if self._skills is None:
            return await self._pass(ctx, server, {"uri": own}, caller)
        caller = await self._skills.permitted(caller, server, own)
        caller = caller if with_client or caller.approval is not None else caller._replace(link=None)
        return self._skills.verified(server, own, await self._pass(ctx, server, {"uri": own}, caller))

    async def _complete(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        reference = params["ref"]
        key, asked = _named(ctx.method, params)
        known = self._of(ctx).directory
        find, hidden = (known.prompt, known.hidden_prompt) if key == "name" else (known.template, known.hidden_resource)
        place = await find(asked, self._allowed(ctx))
        if place is None:
            self._record_denial(ctx, {key: asked}, hidden)
            raise MCPError(types.INVALID_PARAMS, f"Nothing to complete: {asked!r} is not known")
        server, own = place
        if server not in known.providers("completions"):
            return {"completion": {"values": [], "hasMore": False}}
        return await self._pass(ctx, server, {"ref": {**reference, key: own}})

    async def _pass(
        self, ctx: Context, server: str, changed: Mapping[str, Any], caller: Caller | None = None
    ) -> dict[str, Any]:
        """Pass the request on unchanged, except for the server's own names. `caller`: with a permission, if any."""
        params = {key: value for key, value in (ctx.params or {}).items() if key != "_meta"}
        params, caller = {**params, **changed}, caller or self.clients.caller(ctx)
        with recording(self._trail, caller, ctx.method) as record:
            record.about(server, used_by(params), arguments=params)
            self._take_turn(caller)
            return record.result(without_ours(await self._pool.call(server, ctx.method, params, caller)))

    async def _set_level(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        client, level = self.clients.of(ctx), params["level"]
        if client is not None:
            client.wants_logs(level)
            await self._pool.set_log_level(client.key, level)
        return {}

    def _client_left(self, client: Client) -> None:
        self._pool.client_left(client.key)
        self._subscriptions.client_left(client)

    def store_lists(self) -> None:
        """Store what servers listed, because the database was not available before."""
        self._directories.shared.directory.store()

    def announce_tools(self) -> None:
        """Tell every client to fetch its list of tools again."""
        self.changes.announce("tools")

    def on_notice(self, server: str, method: str, params: Mapping[str, Any], key: str = "") -> None:
        """Handle a notification from a server that is meant for all clients; or, if a resource changed in the session
        that the client with this key has for itself, for that client.
        """
        if method == "notifications/resources/updated":
            if (place := self._subscriptions.changed(server, params, key)) is not None:
                self._tasks.spawn(self.changes.updated(place))
            return
        kind = method.removeprefix("notifications/").removesuffix("/list_changed")
        for known in self._directories:
            known.on_notice(server, kind)
        self._announce({kind} & self._told)

    def on_state(self, state: UpstreamState) -> None:
        """A server came or went, and its lists with it. A caller's own server is in no directory but the caller's."""
        for known in self._directories:
            if known is self._directories.shared:
                self._announce(known.on_state(state))
            elif not state.spec.is_of_each_caller:
                known.on_state(state)

    def on_gone(self, server: str) -> None:
        """Handle a server that was removed, or whose name means another one from now on."""
        for known in list(self._directories):
            self._announce(known.on_gone(server))

    def on_own_notice(self, principal: Principal, server: str, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification from a caller's own server, which is meant for that caller's clients alone."""
        if method == "notifications/resources/updated":
            if (place := self._subscriptions.changed(server, params, principal.id)) is not None:
                self._tasks.spawn(self.changes.updated(place))
            return
        kind = method.removeprefix("notifications/").removesuffix("/list_changed")
        if (known := self._directories.existing(principal)) is not None:
            known.on_notice(server, kind)
        self._announce({kind} & self._told, principal.id)

    def on_own_state(self, principal: Principal, state: UpstreamState) -> None:
        """A caller's own server came or went."""
        if (known := self._directories.existing(principal)) is not None:
            self._announce(known.on_state(state), principal.id)

    def _announce(self, kinds: Iterable[str], whose: str = "") -> None:
        for kind in kinds:
            ready = self._tools_ready() if kind == "tools" and self._tools_ready is not None else None
            self.changes.announce(kind, ready, whose)


def _named(method: str, params: Mapping[str, Any]) -> tuple[str, Any]:
    """The parameter that names a request's target, and its value; None if it names nothing on a running server."""
    if method == "completion/complete":
        reference = params["ref"]
        key = "name" if reference.get("type") == "ref/prompt" else "uri"
        return key, reference.get(key)
    key = "name" if method == "prompts/get" else "uri"
    # A subscription is ended here, whatever its server does.
    return key, params.get(key) if method != "resources/unsubscribe" else None


class _NoWaiting:
    """Waits for nothing: for servers that already run."""

    async def settled(self) -> None: ...

    async def lists(self, is_early: Callable[[], bool], recalled: Callable[[], Awaitable[None]]) -> None: ...

    async def own(self, caller: Caller) -> None: ...

    async def until_up(self, server: str, caller: Caller) -> None: ...

    async def tools(self) -> None: ...
