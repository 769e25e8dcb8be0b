"""The fields around a result that a client's protocol revision requires, and none that it does not know. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.domain.result_type import is_input_required

_ONLY_MODERN = frozenset({"resultType", "ttlMs", "cacheScope"})


def for_era(
    result: Mapping[str, Any],
    version: str,
    server_info: Callable[[], Mapping[str, Any]],
    *,
    ttl_ms: int | None = None,
    scope: str = "private",
) -> dict[str, Any]:
    """A result as this revision defines it. `ttl_ms` is how long a list may be cached; the server's own hints take
    precedence.
    """
    if version not in MODERN_PROTOCOL_VERSIONS:
        return {key: value for key, value in result.items() if key not in _ONLY_MODERN}
    hints = {} if ttl_ms is None or is_input_required(result) else {"ttlMs": ttl_ms, "cacheScope": scope}
    meta = result.get("_meta")
    stamped = {types.SERVER_INFO_META_KEY: server_info(), **(meta if isinstance(meta, dict) else {})}
    return {"resultType": "complete", **hints, **result, "_meta": stamped}


def renamed(result: dict[str, Any], own: str, public: str) -> dict[str, Any]:
    """What was read, under the URI that the client used."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    renamed = [{**c, "uri": public} if isinstance(c, dict) and c.get("uri") == own else c for c in contents]
    return {**result, "contents": renamed}
