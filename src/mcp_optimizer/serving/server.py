"""The gateway as an MCP server, for any client in both protocol eras.

The SDK's types stop here. A middleware answers `tools/list` and `tools/call` as raw objects, because the SDK's own
result types would drop unknown fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pydantic_core
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from starlette.requests import Request

from mcp_optimizer.catalog.forms import Detail
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import INSTRUCTIONS, OWN_TOOLS
from mcp_optimizer.domain.tools import McpTool, TokenMetrics
from mcp_optimizer.errors import (
    InvalidRequest,
    OptimizerError,
    UnknownTool,
    UpstreamRefusal,
    quoted,
)
from mcp_optimizer.gateway.found import FoundTools, ToolListPage
from mcp_optimizer.gateway.gateway import SCORES_META_KEY, TOOL_META_KEY, Gateway, entry
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.metrics.accounts import AccountedAnswer, Accounts
from mcp_optimizer.profiles.lists import Presentation
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.relay.connected import client_name
from mcp_optimizer.relay.envelope import for_era
from mcp_optimizer.relay.paging import page
from mcp_optimizer.relay.server import REGISTERED, Relay
from mcp_optimizer.relay.wire_errors import as_mcp_error, as_tool_result
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.known_clients import dialect_for, habits_of, is_conversation

_DESCRIBED = frozenset({"call_tool", "read_result"})
"""Own tools whose results already report their cost."""

FOUND_META_KEY = "mcp-optimizer/found"
"""The `_meta` key of the complete find_tool reply, for clients that would show structured content to the model."""

_FARTHEST = 2**62

_LIST_TTL_MS = 3_600_000
"""The gateway's own tools do not change while it runs."""

_CHANGING_TTL_MS = 60_000
"""Lists of servers' tools change when a server comes or goes."""


class FindToolResponse(BaseModel):
    """The reply of find_tool. `note` says what a reader should know about it, if anything."""

    tools: list[McpTool]
    token_metrics: TokenMetrics
    note: str | None = None


def find_response(found: FoundTools) -> FindToolResponse:
    tools = [hit.form.definition for hit in found.tools]
    return FindToolResponse(tools=tools, token_metrics=found.token_metrics, note=found.note or None)


def find_reply(found: FoundTools, *, structured: bool = True) -> dict[str, Any]:
    """The result of a find_tool call, as sent: a text for the model, and the complete reply for programs.

    The complete reply goes into `_meta` for a client whose model would read it in place of the text.
    """
    answer = find_response(found).model_dump(mode="json", exclude_none=True)
    shown = {key: value for key, value in answer.items() if key != "token_metrics"}
    meta: dict[str, Any] = {SCORES_META_KEY: {hit.tool.name: hit.score for hit in found.tools}}
    if structured:
        return {**_reply(answer, found.text or _json(shown)), "_meta": meta}
    return {**_told(found.text or _json(shown)), "_meta": {**meta, FOUND_META_KEY: answer}}


def list_response(page: ToolListPage) -> dict[str, Any]:
    answer: dict[str, Any] = {"tools": [entry(tool) for tool in page.tools], "total": page.total}
    if page.next_offset is not None:
        answer["next_offset"] = page.next_offset
    if page.note:
        answer["note"] = page.note
    return answer


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
) -> Server[Any]:
    """An MCP server in front of the gateway, for any number of clients."""
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
    answers = _Answers(gateway, server, options, refresher, relay, accounts, gate.limits)
    server.middleware += [gate.check, relay.middleware(lambda: server.server_info_stamp), answers]
    return server


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
        limits: Limits,
    ) -> None:
        self._gateway = gateway
        self._server = server
        self._options = options
        self._refresher = refresher
        self._relay = relay
        self._limits = limits
        self._accounts = accounts
        self._own: dict[str, Callable[[Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]] = {
            "find_tool": self._find_tool,
            "call_tool": self._call_tool,
            "list_tools": self._list_tools,
            "read_result": self._read_result,
        }

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            return await self._tool_list(ctx)
        if ctx.method == "tools/call":
            return self._for_era(await self._call(ctx), ctx.protocol_version)
        return await call_next(ctx)

    async def _tool_list(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        started, profile, version, known = time.perf_counter(), None, ctx.protocol_version, None
        if self._options.transparent:
            await self._relay.started()
            snapshot, show = self._gateway.snapshot, self._gateway.definition
            # In a thread: reading a page of a thousand definitions would delay other calls.
            listed = await asyncio.to_thread(page, snapshot.running, "tools", ctx.params, show)
            answer = self._for_era(listed, version, ttl_ms=_CHANGING_TTL_MS)
            tools, known = listed["tools"], snapshot.baseline_tokens
        else:
            profile = self._profile(ctx)
            tools = [*OWN_TOOLS, *await self._registered(ctx, profile)]
            ttl_ms = _LIST_TTL_MS if profile is None else _CHANGING_TTL_MS
            answer = self._for_era({"tools": tools}, version, ttl_ms=ttl_ms, scope="public")
        if self._accounts is not None:
            taken = (time.perf_counter() - started) * 1_000
            name = profile.value if profile else ""
            self._accounts.loaded(self._relay.clients.caller(ctx), tools, name, taken, known)
        return answer

    def _profile(self, ctx: ServerRequestContext[Any, Any]) -> ProfileName | None:
        """The profile that this client requested by URL, that the settings give it by name, or the default."""
        if isinstance(ctx.request, Request) and (asked := ctx.request.query_params.get("profile")):
            return read_profile(asked)
        return self._options.profile_of_client.get(client_name(ctx), self._options.profile)

    async def _registered(
        self, ctx: ServerRequestContext[Any, Any], profile: ProfileName | None
    ) -> tuple[dict[str, Any], ...]:
        if profile is None or self._refresher is None:
            return ()
        return (await self._refresher.listed(profile, self._presentation(ctx))).definitions

    def _presentation(self, ctx: ServerRequestContext[Any, Any]) -> Presentation:
        habits = habits_of(client_name(ctx))
        return Presentation(dialect_for(habits, self._options.dialect), habits.shows_titles)

    async def _promote(self, ctx: ServerRequestContext[Any, Any], result: Mapping[str, Any]) -> None:
        """After its first use, a tool of the next profile is registered, and listening clients are notified."""
        profile = self._profile(ctx)
        called = (result.get("_meta") or {}).get(TOOL_META_KEY)
        if profile is None or self._refresher is None or not called or not habits_of(client_name(ctx)).asks_again:
            return
        tool = self._gateway.resolve(called["name"], called["server"])
        if await self._refresher.promote(tool.name, profile, self._presentation(ctx)):
            self._relay.announce_tools()

    async def _call(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        params = ctx.params or {}
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs a name and, if any, an object of arguments")
        caller = self._relay.clients.caller(ctx)
        with self._accounting(name, arguments, caller) as account:
            return account.reply(await self._answer(ctx, name, arguments, caller, account))

    async def _answer(
        self,
        ctx: ServerRequestContext[Any, Any],
        name: str,
        arguments: dict[str, Any],
        caller: Caller,
        account: AccountedAnswer,
    ) -> dict[str, Any]:
        """The result of a call, or its failure as a model can use it."""
        started = time.perf_counter()
        try:
            if self._options.transparent:
                await self._relay.started()
                return await self._gateway.pass_on(name, (ctx.params or {}).get("arguments"), caller)
            if (own := self._own.get(name)) is None:
                # Registered directly, or returned by find_tool and called by its own name.
                return await self._gateway.call(name, arguments, caller=caller)
            result = await own(arguments, caller)
            if name == "call_tool":
                await self._promote(ctx, result)
            if name in _DESCRIBED:
                return result
        except OptimizerError as error:
            account.failed(error)
            is_unknown = isinstance(error, UnknownTool) and name not in self._own
            if is_unknown or isinstance(error, UpstreamRefusal):
                raise as_mcp_error(error) from error
            result = as_tool_result(error, self._gateway.limits.reply_tokens // 2)
        return await self._gateway.results.described(result, started)

    def _accounting(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> AccountedAnswer:
        if self._accounts is None:
            return AccountedAnswer(name, arguments, caller)
        return self._accounts.answering(name, arguments, caller)

    async def _find_tool(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        habits = habits_of(caller.client)
        found = await self._gateway.search(
            self._text(arguments, "tool_description", required=True, between="; "),
            self._text(arguments, "tool_keywords"),
            _number(arguments, "limit"),
            self._wanted_detail(arguments),
            caller,
            is_conversation=is_conversation(habits, caller),
        )
        return find_reply(found, structured=not habits.prefers_structure)

    def _text(self, arguments: Mapping[str, Any], key: str, *, required: bool = False, between: str = " ") -> str:
        return _text(arguments, key, self._limits.own_text, required=required, between=between)

    def _wanted_detail(self, arguments: Mapping[str, Any]) -> Detail:
        wanted = self._text(arguments, "detail") or self._options.detail
        if wanted not in set(Detail):
            raise InvalidRequest(f"detail must be one of {', '.join(Detail)}, not {quoted(wanted)}.")
        return Detail(wanted)

    async def _list_tools(self, arguments: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
        server, offset = self._text(arguments, "server") or None, _number(arguments, "offset") or 0
        # In a thread: a page is a hundred definitions to unpack, and their tokens to count.
        page = await asyncio.to_thread(self._gateway.list_tools, server, offset)
        return _reply(list_response(page))

    async def _call_tool(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        name = self._text(arguments, "tool_name", required=True)
        own = {"tool_name", "server_name", "parameters", "select"}
        # Some models put the tool's arguments next to its name, or use MCP's own key for them.
        beside = {key: value for key, value in arguments.items() if key not in own}
        given = arguments.get("parameters")
        parameters = beside if given is None or given == {} else given
        server, select = self._text(arguments, "server_name") or None, self._text(arguments, "select")
        return await self._gateway.call(name, parameters, server, caller, select)

    async def _read_result(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        return await self._gateway.results.read(
            self._text(arguments, "result_id", required=True),
            caller,
            offset=_number(arguments, "offset") or 0,
            limit=_number(arguments, "limit"),
            select=self._text(arguments, "select"),
            search=self._text(arguments, "search"),
        )

    def _for_era(
        self, result: dict[str, Any], version: str, ttl_ms: int | None = None, scope: str = "private"
    ) -> dict[str, Any]:
        return for_era(result, version, self._server.server_info_stamp, ttl_ms=ttl_ms, scope=scope)


def read_profile(text: str) -> ProfileName:
    """A profile by its name, ignoring case."""
    for profile in ProfileName:
        if profile.lower() == text.lower():
            return profile
    raise MCPError(types.INVALID_PARAMS, f"Unknown profile {quoted(text)}. Choose one of: {', '.join(ProfileName)}.")


def _reply(answer: dict[str, Any], text: str = "") -> dict[str, Any]:
    """A reply as structured content, and as text: the same, if no other is given."""
    return {**_told(text or _json(answer)), "structuredContent": answer}


def _told(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _json(answer: dict[str, Any]) -> str:
    """Compact, because a model pays for whitespace."""
    return pydantic_core.to_json(answer).decode("utf-8")


def _text(arguments: Mapping[str, Any], key: str, most: int, *, required: bool, between: str) -> str:
    value = arguments.get(key)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = between.join(value)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise InvalidRequest(f"{key} is required and must be text." if required else f"{key} must be text.")
    if len(value) > most:
        raise InvalidRequest(f"{key} may have {most:,} characters, not {len(value):,}.")
    return value


def _number(arguments: Mapping[str, Any], key: str) -> int | None:
    value = arguments.get(key)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidRequest(f"{key} must be a whole number, not {quoted(value)}.")
    # None of our numbers is that large, and one of ten thousand digits cannot even be written.
    return value if value is None else max(-_FARTHEST, min(value, _FARTHEST))
