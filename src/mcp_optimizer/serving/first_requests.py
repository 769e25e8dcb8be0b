"""The requests that are answered before the gateway is loaded, and their results: handshakes, tools/list, ping. Pure.

Called by `early_answers`. Anything that is unusual in any way is left to the server, so each shape here must be one
that the server accepts as well; tests compare the results. Knows neither the SDK nor the server, which load slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pydantic_core

from mcp_optimizer.domain.own_tools import INSTRUCTIONS, LIST_TTL_MS
from mcp_optimizer.limits import Limits

_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Legacy protocol revisions, the latest last. A client that asks for another one gets the latest."""

_MODERN = "2026-07-28"
_ENVELOPE = "io.modelcontextprotocol/"
_CAPABILITIES = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
_LONGEST = 10_000
"""Bytes of a message that is answered here."""

_LARGEST_ID = 2**63
_OBJECT: dict[str, Any] = {}
_OBJECTS = dict[str, dict[str, Any]]
_CLIENT_INFO = {"name": str, "version": str, "title": str, "description": str, "websiteUrl": str}
_CLIENT_CAPABILITIES = {
    "experimental": _OBJECTS,
    "extensions": _OBJECTS,
    "roots": {"listChanged": bool},
    "sampling": {"context": _OBJECT, "tools": _OBJECT},
    "elicitation": {"form": _OBJECT, "url": _OBJECT},
}
"""What is known of the parts. Other keys may hold anything, except for those of `_UNUSUAL`."""

_UNUSUAL = frozenset({"_meta", "tasks", "icons"})


class Stage(Enum):
    """How far a client is: what it said decides its era, once."""

    NEW = auto()
    LEGACY = auto()
    """It sent a ping before its handshake."""
    INITIALIZED = auto()
    MODERN = auto()


@dataclass(frozen=True)
class FirstRequest:
    """A message that is understood, and the client's stage from then on.

    `result` is None for a notification, which gets no reply.
    """

    stage: Stage
    id: str | int | None = None
    result: Mapping[str, Any] | None = None


class FirstRequests:
    """Understands the first messages of a client."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], version: str, limits: Limits) -> None:
        self._tools = {"tools": list(tools)}
        self._server = {"name": "mcp-optimizer", "title": "mcp-optimizer", "version": version}
        self._limits = limits
        # No more bytes than values are allowed: then the values need not be counted.
        self._longest = min(_LONGEST, limits.request_bytes, limits.request_values, limits.introduction_bytes)

    def understood(self, line: bytes, stage: Stage) -> FirstRequest | None:
        """The message in this line, if it is one of those."""
        message = self._read(line)
        if message is None:
            return None
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message:
            is_known = stage is Stage.INITIALIZED and method == "notifications/initialized" and params == {}
            return FirstRequest(stage) if is_known else None
        if not self._is_id(message["id"]) or not isinstance(params, dict):
            return None
        is_modern = stage is Stage.MODERN or (stage is Stage.NEW and self._has_envelope(params))
        found = self._modern(method, params) if is_modern else self._legacy(method, params, stage)
        return None if found is None else FirstRequest(found[0], message["id"], found[1])

    def _read(self, line: bytes) -> dict[str, Any] | None:
        if len(line) > self._longest:
            return None
        try:
            message = pydantic_core.from_json(line, allow_inf_nan=False)
        except ValueError:
            return None
        is_plain = isinstance(message, dict) and set(message) <= {"jsonrpc", "id", "method", "params"}
        return message if is_plain and message.get("jsonrpc") == "2.0" and _is_writable(message) else None

    def _legacy(self, method: Any, params: Mapping[str, Any], stage: Stage) -> tuple[Stage, Mapping[str, Any]] | None:
        is_initialized = stage is Stage.INITIALIZED
        if method == "initialize" and not is_initialized and self._can_open(params):
            return Stage.INITIALIZED, self._opening(params["protocolVersion"])
        if not _has_only_a_token(params):
            return None
        if method == "ping":
            return stage if is_initialized else Stage.LEGACY, {}
        return (stage, self._tools) if method == "tools/list" and is_initialized else None

    def _modern(self, method: Any, params: Mapping[str, Any]) -> tuple[Stage, Mapping[str, Any]] | None:
        if set(params) != {"_meta"} or not self._has_envelope(params):
            return None
        stamped = {"resultType": "complete", "_meta": {f"{_ENVELOPE}serverInfo": self._server}}
        if method == "tools/list":
            return Stage.MODERN, {**self._tools, **stamped, "ttlMs": LIST_TTL_MS, "cacheScope": "public"}
        if method == "server/discover":
            said = {"supportedVersions": [_MODERN], "capabilities": _CAPABILITIES, "instructions": INSTRUCTIONS}
            return Stage.MODERN, {**said, **stamped, "ttlMs": 0, "cacheScope": "private"}
        return None

    def _has_envelope(self, params: Mapping[str, Any]) -> bool:
        meta = params.get("_meta")
        if not isinstance(meta, dict) or meta.get(f"{_ENVELOPE}protocolVersion") != _MODERN:
            return False
        known = {f"{_ENVELOPE}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")}
        has_parts = set(meta) == known
        return has_parts and self._is_client(meta[f"{_ENVELOPE}clientInfo"], meta[f"{_ENVELOPE}clientCapabilities"])

    def _can_open(self, params: Mapping[str, Any]) -> bool:
        has_parts = set(params) == {"protocolVersion", "capabilities", "clientInfo"}
        is_text = isinstance(params.get("protocolVersion"), str)
        return has_parts and is_text and self._is_client(params["clientInfo"], params["capabilities"])

    def _is_client(self, info: Any, capabilities: Any) -> bool:
        if not _fits(info, _CLIENT_INFO) or not {"name", "version"} <= set(info):
            return False
        return len(info["name"]) <= self._limits.client_name and _fits(capabilities, _CLIENT_CAPABILITIES)

    def _opening(self, asked: str) -> dict[str, Any]:
        return {
            "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": self._server,
            "instructions": INSTRUCTIONS,
        }

    def _is_id(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) <= self._limits.identifier
        return _is_whole(value)


def _fits(value: Any, shape: Any) -> bool:
    if shape == _OBJECTS:
        return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())
    if isinstance(shape, dict):
        is_usual = isinstance(value, dict) and not _UNUSUAL & set(value)
        return is_usual and all(_fits(item, shape[key]) for key, item in value.items() if key in shape)
    return type(value) is shape


def _has_only_a_token(params: Mapping[str, Any]) -> bool:
    """No parameters, except for a token to report progress with."""
    if not params:
        return True
    meta = params.get("_meta")
    if set(params) != {"_meta"} or not isinstance(meta, dict) or not set(meta) <= {"progressToken"}:
        return False
    token = meta.get("progressToken", "")
    return isinstance(token, str) or _is_whole(token)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_ID


def _is_writable(value: Any) -> bool:
    """Not with 1e999, which is read as infinity."""
    if isinstance(value, dict):
        return all(map(_is_writable, value.values()))
    if isinstance(value, list):
        return all(map(_is_writable, value))
    return not isinstance(value, float) or math.isfinite(value)
