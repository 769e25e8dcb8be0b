"""Agrees with a server on a protocol version, modern or legacy, and reads its declarations. Used by the session.

Checks the declarations once, so other modules can rely on capabilities being objects and texts having a bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import get_current
from opentelemetry.propagate import inject
from opentelemetry.trace import get_current_span

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.extensions import SKILLS, TASKS, extension_of
from mcp_optimizer.domain.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    MCP_METHOD_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    METHOD_NOT_FOUND,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.upstream.messages import capabilities_of, shortened
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError

_PROBE_TIMEOUT = 10.0
_LONGEST_NAME = 200

NOT_MODERN = "it does not speak modern MCP"


@dataclass(frozen=True)
class Agreement:
    """The agreed protocol version, and what the server declared."""

    protocol_version: str = ""
    server_version: str = ""
    capabilities: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    instructions: str = ""

    @lazy
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @lazy
    def has_tasks(self) -> bool:
        """Whether the server may answer a call with a task."""
        return self.is_modern and extension_of(self.capabilities, TASKS) is not None

    @lazy
    def has_skills(self) -> bool:
        """Whether the server lists skills, in either era."""
        return extension_of(self.capabilities, SKILLS) is not None

    def can(self, capability: str, detail: str | None = None) -> bool:
        """Whether the server declared a capability such as `resources`, or a detail of it such as `subscribe`."""
        declared = self.capabilities.get(capability)
        return declared is not None and (detail is None or bool(declared.get(detail)))


class Handshake:
    """One attempt to agree with the server behind a peer."""

    def __init__(self, peer: Peer, client_info: Mapping[str, Any]) -> None:
        self._peer = peer
        self._client_info = client_info

    async def agree(self, *, legacy: bool) -> Agreement:
        """Agree on a version. With `legacy`, start with `initialize`."""
        if legacy:
            try:
                return await self._initialize()
            except RpcError as error:
                if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                    raise
                return await self._discover(_mutual(error) or MODERN_PROTOCOL_VERSIONS[-1])
        try:
            return await self._discover(MODERN_PROTOCOL_VERSIONS[-1])
        except LoginNeeded:
            raise
        except RpcError as error:
            if (version := _mutual(error)) is not None:
                return await self._discover(version)
        except ExchangeLost as error:
            if not error.was_sent:
                raise
        # Any other error means that it does not speak modern MCP.
        return await self._initialize_after_probe()

    async def _initialize_after_probe(self) -> Agreement:
        try:
            return await self._initialize()
        except RpcError as error:
            # A server that is slow to start may have accepted the probe after we stopped waiting for it.
            if (version := _mutual(error)) is None:
                raise
            return await self._discover(version)

    async def _discover(self, version: str) -> Agreement:
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"}
        params = {"_meta": envelope(version, self._client_info, LOCAL)}
        result = await self._peer.request("server/discover", params, _PROBE_TIMEOUT, headers=headers)
        supported = result.get("supportedVersions")
        if not isinstance(supported, list) or version not in supported:
            raise RpcError(METHOD_NOT_FOUND, NOT_MODERN)
        meta = result.get("_meta")
        stamp = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
        return _agreement(version, stamp or result.get("serverInfo"), result, self._peer.limits)

    async def _initialize(self) -> Agreement:
        owner = self._peer.owner
        capabilities = dict(owner.capabilities) if owner is not None else {}
        if owner is not None and owner.is_modern and "roots" in capabilities:
            # Modern has no notification for changed roots.
            capabilities["roots"] = {}
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": self._client_info,
        }
        result = await self._peer.request("initialize", params, None)
        version = result.get("protocolVersion")
        if not isinstance(version, str) or version not in HANDSHAKE_PROTOCOL_VERSIONS:
            shown = shortened(str(version), _LONGEST_NAME) if isinstance(version, str) else type(version).__name__
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, f"it speaks an unknown protocol version: {shown}")
        agreement = _agreement(version, result.get("serverInfo"), result, self._peer.limits)
        await self._peer.notify("notifications/initialized", None, {MCP_PROTOCOL_VERSION_HEADER: version})
        return agreement


def _agreement(version: str, info: Any, result: Mapping[str, Any], limits: Limits) -> Agreement:
    instructions = result.get("instructions")
    return Agreement(
        version,
        _named(info),
        capabilities_of(result.get("capabilities")),
        shortened(instructions, limits.description) if isinstance(instructions, str) else "",
    )


def _named(info: Any) -> str:
    parts = [info.get("name"), info.get("version")] if isinstance(info, dict) else []
    return shortened(" ".join(part for part in parts if isinstance(part, str) and part), _LONGEST_NAME)


def envelope(version: str, client_info: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """The metadata of a modern request about its sender."""
    link = caller.link
    said = {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: client_info,
        CLIENT_CAPABILITIES_META_KEY: dict(link.capabilities) if link is not None else {},
    }
    if link is not None and link.log_level is not None:
        said[LOG_LEVEL_META_KEY] = link.log_level
    return said


def continue_trace(meta: dict[str, Any]) -> None:
    """Add the current trace, if any, to a request's metadata."""
    # Without tracing the context is empty, which is much faster to check than the span.
    if get_current() and (meta or get_current_span().get_span_context().is_valid):
        inject(meta)


def _mutual(error: RpcError) -> str | None:
    """The newest version that both sides speak, if the error lists the server's."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    if error.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
        return None
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)
