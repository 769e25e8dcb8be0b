"""The requests that are answered before the gateway is loaded, and their results: a handshake, tools/list, ping. Pure.

Called by `early_answers`. Anything that is unusual in any way is left to the server, so each shape here must be one
that the server accepts as well; tests compare the results. Knows neither the SDK nor the server, which load slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from mcp_optimizer.domain.own_tools import INSTRUCTIONS
from mcp_optimizer.limits import Limits

_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol revisions with a handshake, the latest last. Another one is answered with the latest."""

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
_INTRODUCTION = {
    "protocolVersion": str,
    "capabilities": {
        "experimental": dict[str, dict[str, Any]],
        "extensions": dict[str, dict[str, Any]],
        "roots": {"listChanged": bool},
        "sampling": {"context": _OBJECT, "tools": _OBJECT},
        "elicitation": {"form": _OBJECT, "url": _OBJECT},
    },
    "clientInfo": {"name": str, "version": str, "title": str, "description": str, "websiteUrl": str},
}
"""What is known of the parameters of initialize. Other keys may hold anything, except for those of `_UNUSUAL`."""

_UNUSUAL = frozenset({"_meta", "tasks", "icons"})


@dataclass(frozen=True)
class FirstRequest:
    """A message that is understood. `result` is None for a notification, which gets no reply."""

    id: str | int | None = None
    result: Mapping[str, Any] | None = None
    opens: bool = False
    """Whether it is the handshake."""


class FirstRequests:
    """Understands the first messages of a client."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], version: str, limits: Limits) -> None:
        self._tools = {"tools": list(tools)}
        self._version = version
        self._limits = limits
        # No more bytes than values are allowed: then the values need not be counted.
        self._longest = min(_LONGEST, limits.request_bytes, limits.request_values, limits.introduction_bytes)

    def understood(self, line: bytes, *, is_open: bool) -> FirstRequest | None:
        """The message in this line, if it is one of those; `is_open`: after the handshake."""
        if len(line) > self._longest:
            return None
        try:
            message = pydantic_core.from_json(line, allow_inf_nan=False)
        except ValueError:
            return None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not _is_writable(message):
            return None
        method, params = message.get("method"), message.get("params", {})
        if not isinstance(params, dict) or not set(message) <= {"jsonrpc", "id", "method", "params"}:
            return None
        if "id" not in message:
            return FirstRequest() if is_open and method == "notifications/initialized" and not params else None
        number = message["id"]
        if not self._is_id(number):
            return None
        if method == "initialize":
            return FirstRequest(number, self._opening(params), opens=True) if self._can_open(params, is_open) else None
        if not _has_no_more_than_a_token(params):
            return None
        if method == "ping":
            return FirstRequest(number, {})
        return FirstRequest(number, self._tools) if method == "tools/list" and is_open else None

    def _can_open(self, params: Mapping[str, Any], is_open: bool) -> bool:
        if is_open or not _fits(params, _INTRODUCTION) or not set(_INTRODUCTION) <= set(params):
            return False
        client = params["clientInfo"]
        return {"name", "version"} <= set(client) and len(client["name"]) <= self._limits.client_name

    def _opening(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params["protocolVersion"]
        return {
            "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": {"name": "mcp-optimizer", "title": "mcp-optimizer", "version": self._version},
            "instructions": INSTRUCTIONS,
        }

    def _is_id(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) <= self._limits.identifier
        return _is_whole(value)


def _fits(value: Any, shape: Any) -> bool:
    if shape == dict[str, dict[str, Any]]:
        return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())
    if isinstance(shape, dict):
        is_usual = isinstance(value, dict) and not _UNUSUAL & set(value)
        return is_usual and all(_fits(item, shape[key]) for key, item in value.items() if key in shape)
    return type(value) is shape


def _has_no_more_than_a_token(params: Mapping[str, Any]) -> bool:
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
