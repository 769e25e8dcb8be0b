"""Validates what modern clients send beside their arguments, and provides the SDK runner that answers them.

Caches each combination of headers, tool name and `_meta` that the SDK has validated, on pipes and over HTTP: a client
nearly always repeats it. A modern connection holds no state, so calls with the same combination share one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

import pydantic_core
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import DispatchContext, OnRequest, Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp.shared.transport_context import TransportContext
from mcp_types.version import LATEST_MODERN_VERSION

from mcp_optimizer.serving.dispatcher import CallChain
from mcp_optimizer.serving.messages import CALL
from mcp_optimizer.serving.relay.head import Fields

_ROUTING = (MCP_PROTOCOL_VERSION_HEADER, MCP_METHOD_HEADER, MCP_NAME_HEADER)
_VERSION, _METHOD, _NAME = (field.encode() for field in _ROUTING)
_PARAM = MCP_PARAM_HEADER_PREFIX.lower().encode()
_PROGRESS = "progressToken"

_KNOWN = 64
"""Number of connections to keep, one for each combination."""
_USUAL = 2_000
"""Maximum bytes of a combination that is cached."""

Runner = ServerRunner[Any]
SchemaOf = Callable[[str], Mapping[str, Any] | None]
_Said = tuple[bytes | None, bytes | None, bytes | None, Any, Any]


class ModernClients:
    """Answers the requests of modern clients, each of which carries its client's introduction."""

    def __init__(self, server: Server[Any], lifespan: Any, outbound: Outbound | None = None) -> None:
        """`outbound`: for messages outside of requests, if the transport can send them."""
        self._server = server
        self._lifespan = lifespan
        self._outbound = outbound
        self._schema_of = server.get_tool_input_schema
        self._calls = CallChain(server, lifespan)
        self._known = lru_cache(maxsize=_KNOWN)(self._read)
        self._last: tuple[_Said, Runner] | None = None
        """The last call's combination as parsed: comparing it is quicker than serializing it."""
        self._notified = self._runner(Connection.from_envelope(LATEST_MODERN_VERSION, None, None, **self._channel))

    async def answer(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The result of a request on a pipe. Raises what the SDK raises."""
        return await self._answered(self._right(method, params or {}, None), context, method, params)

    def over_http(self, fields: Fields) -> OnRequest:
        """The handler for a request with these header fields."""

        def answer(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> Awaitable[dict[str, Any]]:
            return self._answered(self._right(method, params or {}, fields), context, method, params)

        return answer

    def _answered(
        self,
        runner: Runner,
        context: DispatchContext[TransportContext],
        method: str,
        params: Mapping[str, Any] | None,
    ) -> Awaitable[dict[str, Any]]:
        if method == CALL and params is not None:
            return self._calls.answer(runner.connection, context, params)
        return runner.on_request(context, method, params)

    async def notified(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        await self._notified.on_notify(context, method, params)

    def connection(self, method: str, params: Mapping[str, Any], fields: Fields | None = None) -> Connection:
        """The connection for a request; raises MCPError if the request is invalid."""
        return self._right(method, params, fields).connection

    def _right(self, method: str, params: Mapping[str, Any], fields: Fields | None) -> Runner:
        if method != CALL:
            return self._routed(method, params, _texts(fields) if fields is not None else None)
        # Over HTTP, a header must repeat the name.
        name, meta = params.get("name") if fields is not None else None, params.get("_meta")
        if isinstance(meta, dict) and _PROGRESS in meta:
            # Differs in each call, and may be long.
            meta = {key: value for key, value in meta.items() if key != _PROGRESS}
        given = fields or {}
        said = (given.get(_VERSION), given.get(_METHOD), given.get(_NAME), name, meta)
        known = self._last
        runner = known[1] if known is not None and known[0] == said else self._remembered(said, fields is not None)
        if fields is not None:
            self._check_arguments(params, fields)
        return runner

    def _remembered(self, said: _Said, is_http: bool) -> Runner:
        *given, name, meta = said
        fields = zip(_ROUTING, given, strict=True)
        headers = {key: value.decode("latin-1") for key, value in fields if value is not None} if is_http else None
        try:
            written = pydantic_core.to_json((headers, name, meta))
        except ValueError:
            return self._call(headers, name, meta)
        if len(written) > _USUAL:
            return self._call(headers, name, meta)
        runner = self._known(written)
        self._last = (said, runner)
        return runner

    def _read(self, said: bytes) -> Runner:
        return self._call(*pydantic_core.from_json(said))

    def _call(self, headers: Mapping[str, str] | None, name: Any, meta: Any) -> Runner:
        return self._routed(CALL, {"name": name, "_meta": meta}, headers)

    def _routed(self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None) -> Runner:
        route = classify_inbound_request({"method": method, "params": params}, headers=headers)
        if isinstance(route, InboundLadderRejection):
            raise _refused(route)
        said = (route.protocol_version, route.client_info, route.client_capabilities)
        return self._runner(Connection.from_envelope(*said, **self._channel))

    @property
    def _channel(self) -> dict[str, Any]:
        return {"outbound": self._outbound} if self._outbound is not None else {}

    def _runner(self, connection: Connection) -> Runner:
        return ServerRunner(self._server, connection, self._lifespan)

    def _check_arguments(self, params: Mapping[str, Any], fields: Fields) -> None:
        """Check that headers that repeat arguments match them."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if self._schema_of is None or not isinstance(name, str) or not isinstance(arguments, dict):
            # The gate reports this error.
            return
        if not arguments and not any(field.startswith(_PARAM) for field in fields):
            return
        if (schema := self._schema_of(name)) is not None:
            rejection = validate_mcp_param_headers(schema, arguments, _texts(fields))
            if rejection is not None:
                raise _refused(rejection)


def _texts(fields: Fields) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}


def _refused(rejection: InboundLadderRejection) -> MCPError:
    return MCPError(rejection.code, rejection.message, rejection.data)
