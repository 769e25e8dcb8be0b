"""Which requests of modern clients the SDK would take as calls, by what they say beside their arguments.

Called by `modern_lane`. Remembers what was said before, so that the SDK need not look at it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pydantic_core
from mcp.server.connection import Connection
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    validate_mcp_param_headers,
)

from mcp_optimizer.relay.head import Fields
from mcp_optimizer.relay.sdk_calls import CALL
from mcp_optimizer.serving.plain_calls import without_token

_ROUTING = (MCP_PROTOCOL_VERSION_HEADER, MCP_METHOD_HEADER, MCP_NAME_HEADER)
_VERSION, _METHOD, _NAME = (field.encode() for field in _ROUTING)
_PARAM = MCP_PARAM_HEADER_PREFIX.lower().encode()

_KNOWN = 64
"""Connections that are kept, by what calls say beside their arguments."""
_USUAL = 2_000
"""Bytes of what a call says beside its arguments."""

SchemaOf = Callable[[str], Any]
_Said = tuple[bytes | None, bytes | None, bytes | None, Any, Any]


class ModernRoutes:
    """Finds the connection of a call."""

    def __init__(self, schema_of: SchemaOf | None) -> None:
        """`schema_of` is the schema of a tool by which the SDK checks headers with arguments."""
        self._schema_of = schema_of
        self._known = lru_cache(maxsize=_KNOWN)(_known_connection)
        self._last: tuple[_Said, Connection | None] | None = None
        """What the last call said, as it was read: comparing it is quicker than writing it."""

    def connection(self, params: Mapping[str, Any], fields: Fields) -> Connection | None:
        """On which a call is answered; None if the SDK would refuse it. Nothing is kept with a modern connection, so
        calls can share one.
        """
        name, meta = params.get("name"), params.get("_meta")
        if isinstance(meta, dict):
            meta = without_token(meta)
        said = (fields.get(_VERSION), fields.get(_METHOD), fields.get(_NAME), name, meta)
        # It is nearly always the same.
        known = self._last
        connection = known[1] if known is not None and known[0] == said else self._routed(said)
        return connection if connection is not None and self._agrees(params, fields) else None

    def _routed(self, said: _Said) -> Connection | None:
        *given, name, meta = said
        headers = {
            field: value.decode("latin-1") for field, value in zip(_ROUTING, given, strict=True) if value is not None
        }
        try:
            written = pydantic_core.to_json((headers, name, meta))
        except ValueError:
            return _connection(headers, name, meta)
        if len(written) > _USUAL:
            return _connection(headers, name, meta)
        connection = self._known(written)
        self._last = (said, connection)
        return connection

    def _agrees(self, params: Mapping[str, Any], fields: Fields) -> bool:
        """Whether headers that repeat arguments are right."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if self._schema_of is None or not isinstance(name, str) or not isinstance(arguments, dict):
            return False
        if not arguments and not any(field.startswith(_PARAM) for field in fields):
            return True
        if (schema := self._schema_of(name)) is None:
            return True
        headers = {field.decode("latin-1"): value.decode("latin-1") for field, value in fields.items()}
        return validate_mcp_param_headers(schema, arguments, headers) is None


def _known_connection(said: bytes) -> Connection | None:
    return _connection(*pydantic_core.from_json(said))


def _connection(headers: Mapping[str, str], name: Any, meta: Any) -> Connection | None:
    body = {"method": CALL, "params": {"name": name, "_meta": meta}}
    route = classify_inbound_request(body, headers=headers)
    if not isinstance(route, InboundModernRoute):
        return None
    return Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
