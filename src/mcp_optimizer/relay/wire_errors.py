"""How our errors reach a client: as a JSON-RPC error, or as the result of a tool call that a model reads. Pure."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_optimizer.errors import (
    InvalidArguments,
    OptimizerError,
    RequestError,
    ServerBusy,
    TooManyCalls,
    UpstreamRefusal,
)
from mcp_optimizer.largejson.text import compact

_LONGEST_TEXT = 10_000
"""Default maximum bytes of an error that a model reads."""


def as_mcp_error(error: OptimizerError) -> MCPError:
    """A JSON-RPC error. A server's own one keeps its code and its data."""
    if isinstance(error, UpstreamRefusal):
        return MCPError(error.code, str(error), error.data)
    hint = {"retryAfter": error.retry_after} if isinstance(error, ServerBusy | TooManyCalls) else None
    code = types.INVALID_PARAMS if isinstance(error, RequestError) else types.INTERNAL_ERROR
    return MCPError(code, str(error), hint)


def as_tool_result(error: OptimizerError, most: int) -> dict[str, Any]:
    """The result of a tool call that failed, because a model can act on that."""
    return {"content": [{"type": "text", "text": for_model(error, most)}], "isError": True}


def for_model(error: OptimizerError, most: int = _LONGEST_TEXT) -> str:
    """The text a model reads: the problem, and what it needs to get the next call right.

    A text longer than `most` bytes, and so possibly tokens, is reduced to both ends. The schema is not shortened here.
    """
    text = _both_ends(str(error), most)
    if not isinstance(error, InvalidArguments):
        return text
    title = (
        'Schema (abbreviated; find_tool with limit=1 and detail="full" shows all)' if error.abbreviated else "Schema"
    )
    return f"{text} {title}: {compact(error.schema)}"


def _both_ends(text: str, most: int) -> str:
    if len(text) * 4 <= most or len(text.encode("utf-8", "surrogatepass")) <= most:
        return text
    # As many characters as fit in any encoding.
    half = most // 8 - 1
    return f"{text[:half]} … {text[-half:]}"
