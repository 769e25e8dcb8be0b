"""Calls as nearly all are, in which the SDK's models would find nothing wrong, so that it need not look.

A legacy call says little besides its arguments. A modern one says who calls, nearly always the same: that is shown to
the SDK once. Called by the gate, which shows the SDK everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic_core
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from mcp_optimizer.relay.sdk_calls import CALL

_NAMES = frozenset({"name", "arguments", "_meta"})
_PROGRESS = "progressToken"
_MOST_KNOWN = 64
_LONGEST = 2_000
"""Bytes of what a client says of itself."""


class PlainCalls:
    """Knows what modern clients say of themselves and the SDK has accepted."""

    def __init__(self) -> None:
        self._accepted: set[tuple[str, bytes]] = set()
        self._last: tuple[str, Any] | None = None
        """What the last one said, as it was read: comparing it is quicker than writing it."""

    def has(self, method: str, version: str, params: Mapping[str, Any]) -> bool:
        """Whether these parameters are known to be right."""
        if method != CALL or not _is_plain(params):
            return False
        return self._last == (version, params.get("_meta")) or self._is_accepted(version, params)

    def _is_accepted(self, version: str, params: Mapping[str, Any]) -> bool:
        if version in HANDSHAKE_PROTOCOL_VERSIONS:
            return True
        meta = params.get("_meta")
        if (version, _said(params)) not in self._accepted:
            return False
        if meta and _PROGRESS not in meta:
            # A token is another in each call, and may be long.
            self._last = (version, meta)
        return True

    def learn(self, method: str, version: str, params: Mapping[str, Any]) -> None:
        """The SDK has accepted these parameters."""
        if method == CALL and _is_plain(params) and (said := _said(params)):
            if len(self._accepted) >= _MOST_KNOWN:
                self._accepted.clear()
            self._accepted.add((version, said))


def without_token(meta: dict[str, Any]) -> dict[str, Any]:
    """What a client says beside a call, apart from the token for its progress, which is another in each call."""
    return {key: value for key, value in meta.items() if key != _PROGRESS} if _PROGRESS in meta else meta


def _is_plain(params: Mapping[str, Any]) -> bool:
    arguments, meta = params.get("arguments"), params.get("_meta")
    if type(params.get("name")) is not str or not params.keys() <= _NAMES:
        return False
    if arguments is not None and type(arguments) is not dict:
        return False
    return meta is None or (type(meta) is dict and type(meta.get(_PROGRESS, 0)) in (int, str))


def _said(params: Mapping[str, Any]) -> bytes:
    """What a client says of itself; nothing if that is much."""
    try:
        said = pydantic_core.to_json(without_token(params.get("_meta") or {}))
    except ValueError:
        return b""
    return said if len(said) <= _LONGEST else b""
