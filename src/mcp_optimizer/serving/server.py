"""The gateway as an MCP server, for any client in both protocol eras.

The SDK's types stop here. A middleware answers `tools/list` and `tools/call` as raw objects, because the SDK's own
result types would drop unknown fields.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.config.known_clients.habits import habits_of
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import (
    CALLING,
    CHANGING_TTL_MS,
    INSTRUCTIONS,
    NO_SIGNPOST,
    ScriptMode,
    Signpost,
    tools_for,
)
from mcp_optimizer.errors import InvalidRequest, OptimizerError, UnknownTool, UpstreamRefusal, quoted
from mcp_optimizer.gateway.app_pages import shows_pages
from mcp_optimizer.gateway.arguments import without
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.metrics.accounts import AccountedAnswer, Accounts
from mcp_optimizer.profiles.lists import Presentation
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.profiles.signposts import Signposts
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.results.metadata import TOOL_META_KEY
from mcp_optimizer.serving.dispatcher import InOrder
from mcp_optimizer.serving.extensions.announcing import GREETINGS, Extensions
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.messages import CALL, as_mcp_error, as_tool_result, for_era
from mcp_optimizer.serving.own_tools import OwnTool, OwnTools, dialect_for, for_reader
from mcp_optimizer.serving.relay.connected import Context, client_name, is_http
from mcp_optimizer.serving.relay.listings import page
from mcp_optimizer.serving.relay.server import REGISTERED, Relay
from mcp_optimizer.serving.tracing import WhenTraced

if TYPE_CHECKING:
    # Loaded only if scripts are on.
    from mcp_optimizer.scripts.runner import ScriptRunner

_DESCRIBED = CALLING | {"read_result", "run_script"}
"""Own tools whose results already report their cost."""


@dataclass(frozen=True)
class ServerOptions:
    """Defaults for clients: find_tool's detail, and the profile of directly registered tools.

    With `transparent`, clients get no tools of ours, only those of the servers, unchanged.
    """

    detail: Detail = Detail.SIGNATURE
    profile: ProfileName | None = None
    dialect: Dialect = Dialect.PLAIN
    profile_of_client: Mapping[str, ProfileName] = field(default_factory=dict)
    transparent: bool = False
    native: bool = False
    """Whether clients get all tools, compressed, and search among them themselves."""
    split_calls: bool | None = False
    """Whether read-only tools are called through a separate tool; None: for clients that ask for permission by tool."""
    scripts: ScriptMode = ScriptMode.OFF
    """Whether clients get run_script, and what scripts may call."""
    app_tools: int = 20
    """Maximum tools with a page that are registered for clients that show pages."""


class _GatewayServer(Server[Any]):
    """The SDK's server, with changing lists for legacy clients too."""

    def create_initialization_options(self, *_args: Any, **_fields: Any) -> InitializationOptions:
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(every)


def build_server(
    gateway: Gateway,
    version: str,
    relay: Relay,
    options: ServerOptions | None = None,
    refresher: ListRefresher | None = None,
    accounts: Accounts | None = None,
    gate: Gate | None = None,
    scripts: ScriptRunner | None = None,
    signposts: Signposts | None = None,
    extensions: Extensions | None = None,
) -> Server[Any]:
    """An MCP server in front of the gateway, for any number of clients. `scripts` runs scripts, if clients get
    run_script; `signposts` describe the servers behind the gateway, if clients get that; `extensions` are those of the
    protocol that the servers behind it may have.
    """
    options = options or ServerOptions()
    gate = gate or Gate(DEFAULT_LIMITS)
    server = _GatewayServer(
        "mcp-optimizer",
        version=version,
        title="mcp-optimizer",
        instructions=None if options.transparent else INSTRUCTIONS,
        # Registered so that the capability is announced; `_Answers` responds before they are reached.
        on_list_tools=_never,
        on_call_tool=_never,
        on_subscriptions_listen=ListenHandler(
            relay.bus,
            max_subscriptions=gate.limits.sessions,
            max_buffered_events=gate.limits.pending_notifications,
        ),
        get_tool_input_schema=gateway.input_schema if options.transparent else lambda _name: None,
    )
    for method, params in REGISTERED.items():
        server.add_request_handler(method, params, _never)
    own = OwnTools(gateway, gate.limits, options.detail, scripts).by_name(split_calls=options.split_calls is not False)
    answers = _Answers(gateway, server, options, refresher, relay, accounts, own, signposts)
    known = extensions or Extensions((), dict, _nothing, relay.clients.caller)
    server.middleware[:] = [
        InOrder(
            # The SDK's own middlewares create spans.
            *map(WhenTraced, server.middleware),
            gate.check,
            known.middleware(answers.server_info),
            relay.middleware(answers.server_info),
            answers,
        )
    ]
    return server


def _nothing(_caller: Caller, _server: str) -> bool:
    return False


async def _never(_context: Any, _params: Any) -> Any:
    raise AssertionError("answered by the middleware")


class _Answers:
    """Answers tools/list and tools/call; the SDK handles everything else."""

    def __init__(
        self,
        gateway: Gateway,
        server: Server[Any],
        options: ServerOptions,
        refresher: ListRefresher | None,
        relay: Relay,
        accounts: Accounts | None,
        own: Mapping[str, OwnTool],
        signposts: Signposts | None,
    ) -> None:
        self._gateway = gateway
        self._server = server
        self._options = options
        self._refresher = refresher
        self._relay = relay
        self._accounts = accounts
        self._accounting = accounts.answering if accounts is not None else AccountedAnswer
        self._own = own
        self._signposts = signposts
        # Computed once: the SDK copies it each time, and it never changes.
        self.server_info = lru_cache(lambda: server.server_info_stamp)

    def __call__(self, ctx: Context, call_next: CallNext) -> Awaitable[HandlerResult]:
        return self._call(ctx) if ctx.method == CALL else self._other(ctx, call_next)

    async def _other(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            return await self._tool_list(ctx)
        result = await call_next(ctx)
        if ctx.method in GREETINGS and isinstance(result, dict) and result.get("instructions"):
            signpost = await self._signpost(self._relay.clients.caller(ctx))
            said = signpost.native_instructions if self._options.native else signpost.instructions
            return {**result, "instructions": said}
        return result

    async def _signpost(self, caller: Caller) -> Signpost:
        return await self._signposts.of(caller) if self._signposts is not None else NO_SIGNPOST

    async def _tool_list(self, ctx: Context) -> dict[str, Any]:
        started, profile, version, known = time.perf_counter(), None, ctx.protocol_version, None
        caller = self._caller(ctx)
        if self._options.transparent:
            await self._relay.first_start.tools()
            await self._relay.first_start.own(caller)
            snapshot, show = await self._gateway.seen_by(caller), self._gateway.definition
            # In a thread: reading a page of a thousand definitions would delay other calls.
            seen = snapshot.callable if shows_pages(caller) else snapshot.running
            listed = await asyncio.to_thread(page, seen, "tools", ctx.params, show)
            answer = self._for_era(listed, version, ttl_ms=CHANGING_TTL_MS)
            tools, known = listed["tools"], snapshot.sent_tokens
        else:
            profile = self._profile(ctx, caller)
            registered = await self._registered(ctx, profile, caller)
            signpost = await self._signpost(caller)
            options = self._options
            habits = habits_of(caller.client)
            own = tools_for(habits, options.split_calls, scripts=options.scripts, native=options.native)
            # Text for the client alone costs the model nothing, so it is not counted.
            tools = [*signpost.on(own), *registered]
            listed = {"tools": [*signpost.on(own, habits), *registered]}
            ttl_ms = signpost.ttl_ms if profile is None and not registered else CHANGING_TTL_MS
            # Our own tools are the same for all clients, or all of one kind; registered tools may depend on the caller.
            scope = "private" if registered else signpost.scope
            answer = self._for_era(listed, version, ttl_ms=ttl_ms, scope=scope)
        if self._accounts is not None:
            taken = (time.perf_counter() - started) * 1_000
            await self._gateway.seen_by(caller)  # made here, for the accounts
            name = profile.value if profile else ""
            self._accounts.loaded(caller, tools, name, taken, known)
        return answer

    def _caller(self, ctx: Context) -> Caller:
        """The caller of a request, narrowed to servers that exist for it."""
        caller = self._relay.clients.caller(ctx)
        if caller.narrowed is None:
            return caller
        try:
            self._gateway.permissions.views.check_narrowing(self._gateway.snapshot, caller)
        except InvalidRequest as error:
            raise as_mcp_error(error) from error
        return caller

    def _profile(self, ctx: Context, caller: Caller) -> ProfileName | None:
        """The profile of the caller's key or token, else of the URL, else of the client's name, else the default."""
        if caller.principal.profile is not None:
            return read_profile(caller.principal.profile)
        if is_http(ctx.request) and (asked := ctx.request.query_params.get("profile")):
            return read_profile(asked)
        return self._options.profile_of_client.get(caller.client, self._options.profile)

    async def _registered(
        self, ctx: Context, profile: ProfileName | None, caller: Caller
    ) -> tuple[dict[str, Any], ...]:
        if shows_pages(caller):
            return await self._with_pages(ctx, await self._of_profile(ctx, profile, caller), caller)
        return await self._of_profile(ctx, profile, caller)

    async def _with_pages(
        self, ctx: Context, registered: tuple[dict[str, Any], ...], caller: Caller
    ) -> tuple[dict[str, Any], ...]:
        """The registered tools for a host that shows pages, which learns of a page only from a tool's definition."""
        view, dialect = await self._gateway.seen_by(caller), self._presentation(ctx).dialect
        if not view.of_apps:
            return registered
        most = self._options.app_tools
        for_hosts = await asyncio.to_thread(self._gateway.pages.for_hosts, view, dialect, most)
        metas = {tool.name: meta for tool in view.of_apps if (meta := self._gateway.pages.meta_of(tool)) is not None}
        known = {definition["name"] for definition in registered}
        named = (
            {**definition, "_meta": metas[definition["name"]]} if definition["name"] in metas else definition
            for definition in registered
        )
        return (*named, *(definition for definition in for_hosts if definition["name"] not in known))

    async def _of_profile(
        self, ctx: Context, profile: ProfileName | None, caller: Caller
    ) -> tuple[dict[str, Any], ...]:
        if profile is None or self._refresher is None:
            return ()
        definitions = (await self._refresher.listed(profile, self._presentation(ctx))).definitions
        view = await self._gateway.seen_by(caller)
        if view is self._gateway.snapshot:
            return definitions
        return tuple(
            self._as_seen(definition, view, ctx) for definition in definitions if definition["name"] in view.by_name
        )

    def _as_seen(self, definition: dict[str, Any], view: Snapshot, ctx: Context) -> dict[str, Any]:
        """A definition, as the caller's own server lists it if it has one."""
        tool = view.by_name[definition["name"]]
        if self._refresher is None or not view.is_own(tool.server):
            return definition
        return self._refresher.listing(tool, self._presentation(ctx))

    def _presentation(self, ctx: Context) -> Presentation:
        habits = habits_of(client_name(ctx))
        return Presentation(dialect_for(habits, self._options.dialect), habits.shows_titles)

    async def _promote(self, ctx: Context, result: Mapping[str, Any], caller: Caller) -> None:
        """Register a tool of the next profile after its first use, and notify listening clients."""
        profile = self._profile(ctx, caller)
        called = (result.get("_meta") or {}).get(TOOL_META_KEY)
        if profile is None or self._refresher is None or not called or not habits_of(caller.client).asks_again:
            return
        tool = self._gateway.resolve(called["name"], called["server"])
        if tool.record.skill is not None:
            return
        if await self._refresher.promote(tool.name, profile, self._presentation(ctx)):
            self._relay.announce_tools()

    async def _call(self, ctx: Context) -> dict[str, Any]:
        params = ctx.params or {}
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs a name and, if any, an object of arguments")
        caller = self._caller(ctx)
        with self._accounting(name, arguments, caller) as account:
            result = account.reply(await self._answer(ctx, name, arguments, caller, account))
        return self._for_era(for_reader(result, habits_of(caller.client)), ctx.protocol_version)

    async def _answer(
        self,
        ctx: Context,
        name: str,
        arguments: dict[str, Any],
        caller: Caller,
        account: AccountedAnswer,
    ) -> dict[str, Any]:
        """The result of a call, or its failure in a form that a model can use."""
        started, added = time.perf_counter(), habits_of(caller.client).added_arguments
        try:
            if self._options.transparent:
                given, by_page = (ctx.params or {}).get("arguments"), shows_pages(caller)
                return await self._gateway.pass_on(name, given, caller, added, by_page=by_page)
            if (own := self._own.get(name)) is None:
                # A tool registered directly, or returned by find_tool and called by its own name.
                by_page = shows_pages(caller)
                return await self._gateway.call(
                    name, arguments, caller=caller, added=added, by_page=by_page, may_defer=True
                )
            result = await own(without(added, arguments) if added else arguments, caller)
            if name in CALLING:
                await self._promote(ctx, result, caller)
            if name in _DESCRIBED:
                return result
        except OptimizerError as error:
            account.failed(error)
            is_unknown = isinstance(error, UnknownTool) and name not in self._own
            if is_unknown or isinstance(error, UpstreamRefusal):
                raise as_mcp_error(error) from error
            result = as_tool_result(error, self._gateway.limits.reply_tokens // 2)
        return await self._gateway.results.described(result, started)

    def _for_era(
        self, result: dict[str, Any], version: str, ttl_ms: int | None = None, scope: str = "private"
    ) -> dict[str, Any]:
        return for_era(result, version, self.server_info, ttl_ms=ttl_ms, scope=scope)


def read_profile(text: str) -> ProfileName:
    """A profile by its name, ignoring case."""
    for profile in ProfileName:
        if profile.lower() == text.lower():
            return profile
    raise MCPError(types.INVALID_PARAMS, f"Unknown profile {quoted(text)}. Choose one of: {', '.join(ProfileName)}.")
