"""The place of the protocol's extensions: tells clients which the servers have, and answers the methods that they add.

An extension is one file of this folder: an object with its identifier, its methods, and what it declares to a client,
given the declarations of the servers that exist for the client. Extensions that the gateway does not know are not
declared to clients, because they may add methods, and nothing says which server a method is for. A middleware of the
MCP server, in front of the relay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import APPS, WHILE_STARTING, extension_of, needed
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.serving.messages import as_mcp_error, for_era
from mcp_optimizer.serving.relay.connected import Context, Middleware, is_http
from mcp_optimizer.upstream.state import UpstreamState

GREETINGS = frozenset({"initialize", "server/discover"})
"""Methods whose results declare what the gateway can do."""

_LISTEN = "subscriptions/listen"

Settings = Mapping[str, Any]
Method = Callable[[Context, Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]


class Extension(Protocol):
    """One extension of the protocol."""

    @property
    def identifier(self) -> str: ...

    @property
    def methods(self) -> Mapping[str, Method]:
        """The requests that it adds, with what answers them."""
        ...

    @property
    def is_modern_only(self) -> bool:
        """Whether only modern clients can use it."""
        ...

    def declared(self, settings: Iterable[Settings], caller: Caller) -> Settings | None:
        """What a client is told, given what the servers that exist for it declare; None: nothing."""
        ...

    def listening(self, ctx: Context, call_next: CallNext, caller: Caller) -> Awaitable[HandlerResult]:
        """Answer a client that listens for changes; `call_next` does it without this extension."""
        ...


class Extensions:
    """All extensions that the gateway carries."""

    def __init__(
        self,
        every: Iterable[Extension],
        states: Callable[[], Mapping[str, UpstreamState]],
        permits: Callable[[Caller, str], bool],
        caller_of: Callable[[Context], Caller],
    ) -> None:
        self._every = tuple(every)
        self._states = states
        self._permits = permits
        self._caller_of = caller_of
        self._methods = {method: (one, answer) for one in self._every for method, answer in one.methods.items()}

    def middleware(self, server_info: Callable[[], Mapping[str, Any]]) -> Middleware:
        """The middleware for the MCP server that identifies itself as `server_info`."""
        return partial(self._handle, server_info)

    def _handle(
        self, server_info: Callable[[], Mapping[str, Any]], ctx: Context, call_next: CallNext
    ) -> Awaitable[HandlerResult]:
        # Not a coroutine of its own: calls of tools only pass here.
        if (known := self._methods.get(ctx.method)) is not None:
            extension, answer = known
            if not extension.is_modern_only or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return self._answer(server_info, ctx, answer)
        elif ctx.method == _LISTEN:
            return self._listen(ctx, call_next)
        elif ctx.method in GREETINGS:
            return self._greet(ctx, call_next)
        return call_next(ctx)

    async def _greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if isinstance(result, dict) and (found := self.declared(self._caller_of(ctx))):
            capabilities = {**(result.get("capabilities") or {}), "extensions": found}
            return {**result, "capabilities": capabilities}
        return result

    def declared(self, caller: Caller) -> dict[str, Settings]:
        """What a caller's client is told: the extensions of at least one server that exists for it, or all while one
        of these servers starts.
        """
        found: dict[str, Settings] = {}
        known = [state for name, state in self._states().items() if self._permits(caller, name)]
        servers = [state.capabilities for state in known if state.is_available]
        is_starting = any(state.status is ServerStatus.STARTING and not state.is_available for state in known)
        for one in self._every:
            settings = [said for each in servers if (said := extension_of(each, one.identifier)) is not None]
            settings += [WHILE_STARTING[one.identifier]] if is_starting else []
            if (told := one.declared(settings, caller)) is not None:
                found[one.identifier] = told
        return found

    async def _answer(
        self, server_info: Callable[[], Mapping[str, Any]], ctx: Context, answer: Method
    ) -> HandlerResult:
        try:
            result = await answer(ctx, ctx.params or {}, self._caller_of(ctx))
        except OptimizerError as error:
            raise as_mcp_error(error) from error
        return for_era(result, ctx.protocol_version, server_info)

    async def _listen(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        caller = self._caller_of(ctx)
        for one in reversed(self._every):
            call_next = _before(one, call_next, caller)
        try:
            return await call_next(ctx)
        except OptimizerError as error:
            raise as_mcp_error(error) from error


def _before(extension: Extension, call_next: CallNext, caller: Caller) -> CallNext:
    async def listen(ctx: Context) -> HandlerResult:
        return await extension.listening(ctx, call_next, caller)

    return listen


def text_in(params: Mapping[str, Any], key: str, most: int) -> str:
    """A text that a request must have; raises MCPError."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise MCPError(types.INVALID_PARAMS, f"{key} is required and must be text.")
    if len(value) > most:
        raise MCPError(types.INVALID_PARAMS, f"{key} may have {most:,} characters, not {len(value):,}.")
    return value


def missing(identifier: str) -> MCPError:
    """The error for a client that uses an extension which it did not declare."""
    text = f"This client did not declare the extension {identifier}, which the request needs."
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, needed(identifier))


def check_name_header(ctx: Context, name: str) -> None:
    """Check that the header by which a request is routed repeats its name; raises MCPError. On stdio there is none."""
    if is_http(ctx.request) and ctx.request.headers.get("mcp-name") != name:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must repeat the taskId of the request.")


# MCP Apps: hosts are told that servers have pages. Everything else about pages is in tools, results and resources:
# `gateway/app_pages`.


class Apps:
    """Declares the extension, which adds no method."""

    identifier = APPS
    methods: Mapping[str, Method] = {}
    is_modern_only = False

    def __init__(self, has_pages: Callable[[Caller], bool]) -> None:
        """`has_pages`: whether a caller may call a tool with a page. Most servers with pages declare nothing."""
        self._has_pages = has_pages

    def declared(self, settings: Iterable[Settings], caller: Caller) -> Settings | None:
        return {} if any(True for _ in settings) or self._has_pages(caller) else None

    def listening(self, ctx: Context, call_next: CallNext, caller: Caller) -> Awaitable[HandlerResult]:
        del caller
        return call_next(ctx)
