"""Messages to clients: results with the fields of their revision, errors, and JSON that can always be written. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import mcp_types as types
import pydantic_core
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, RequestId
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.access.audit.recording import recording, used_by
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.access.policy.policy import THE_CALLERS_SERVERS, call_refusal
from mcp_optimizer.domain.caller import Caller, Decision, Effect, Risk, RiskClass
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.errors import CallRefused, OptimizerError, RequestError, ServerBusy, TooManyCalls, UpstreamRefusal
from mcp_optimizer.gateway.error_texts import for_model
from mcp_optimizer.largejson.raw import Placeholders, has_large
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine

# What is sent to clients: results with the fields of their revision, errors, and only JSON that can be written. A
# server's JSON can contain half surrogate pairs, infinite numbers and any depth, which our writers cannot write: one
# such value would break a client's stream.

_ONLY_MODERN = frozenset({"resultType", "ttlMs", "cacheScope"})


def for_era(
    result: Mapping[str, Any],
    version: str,
    server_info: Callable[[], Mapping[str, Any]],
    *,
    ttl_ms: int | None = None,
    scope: str = "private",
) -> dict[str, Any]:
    """A result as this revision defines it. `ttl_ms`: how long a list may be cached; the server's own hints take
    precedence.
    """
    if version not in MODERN_PROTOCOL_VERSIONS:
        return {key: value for key, value in result.items() if key not in _ONLY_MODERN}
    hints = {} if ttl_ms is None or is_input_required(result) else {"ttlMs": ttl_ms, "cacheScope": scope}
    meta = result.get("_meta")
    stamped = {types.SERVER_INFO_META_KEY: server_info(), **(meta if isinstance(meta, dict) else {})}
    return {"resultType": "complete", **hints, **result, "_meta": stamped}


def renamed(result: dict[str, Any], own: str, public: str) -> dict[str, Any]:
    """A result of reading, with its contents under the URI that the client used."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    renamed = [{**c, "uri": public} if isinstance(c, dict) and c.get("uri") == own else c for c in contents]
    return {**result, "contents": renamed}


def as_mcp_error(error: OptimizerError) -> MCPError:
    """A JSON-RPC error. An error from a server keeps its code and its data."""
    if isinstance(error, UpstreamRefusal):
        return MCPError(error.code, str(error), error.data)
    hint = {"retryAfter": error.retry_after} if isinstance(error, ServerBusy | TooManyCalls) else None
    code = types.INVALID_PARAMS if isinstance(error, RequestError) else types.INTERNAL_ERROR
    return MCPError(code, str(error), hint)


def as_tool_result(error: OptimizerError, most: int) -> dict[str, Any]:
    """The result of a failed tool call; a result, because a model can act on that."""
    return {"content": [{"type": "text", "text": for_model(error, most)}], "isError": True}


_DEEPEST = 190
"""Levels that our JSON writers can safely write, including those of the message around them."""

_HALF_PAIR = regex("[\ud800-\udfff]")


_TOO_DEEP = f"nested more than {_DEEPEST} levels deep"


class TooDeep(ValueError):
    """Nested more deeply than can be written."""


def sendable(value: dict[str, Any]) -> dict[str, Any]:
    """Nearly always the value itself; otherwise a copy with unwritable parts replaced. Raises TooDeep."""
    try:
        # It takes a third of the time of looking at each part, and refuses what would have to be replaced.
        written = pydantic_core.to_json(value, inf_nan_mode="constants")
    except ValueError:
        return _mended_where_needed(value)
    if b"Infinity" in written or b"NaN" in written:
        return _mended_where_needed(value)
    if written.count(b"{") + written.count(b"[") > _DEEPEST:
        _check_depth(value)
    return value


def _check_depth(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for item in level
            for inner in (item.values() if type(item) is dict else item)
            if type(inner) is dict or type(inner) is list or type(inner) is tuple
        ]
        if not level:
            return
    raise TooDeep(_TOO_DEEP)


def _mended_where_needed(value: dict[str, Any]) -> dict[str, Any]:
    mended = False
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                mended = mended or not (item.isascii() or _is_text(item))
            elif kind is dict:
                # Checked inline, without a call for each key: nearly all are short names.
                for key in item:
                    if type(key) is not str or not key.isascii():
                        mended = mended or not _is_text(key)
                below.extend(item.values())
            elif kind is list or kind is tuple:
                below.extend(item)
            elif kind is float:
                mended = mended or not math.isfinite(item)
        if not below:
            return _mended(value) if mended else value
        level = below
    raise TooDeep(_TOO_DEEP)


def _is_text(text: Any) -> bool:
    return not isinstance(text, str) or text.isascii() or not _HALF_PAIR.search(text)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


A_RULE: Final = "a rule of the settings"

_READING: Final = RiskClass(Risk.READ, "default")


def record_denial(
    trail: AuditTrail | None, caller: Caller, method: str, params: Mapping[str, Any], server: str
) -> None:
    """Record a denied request. `server`: the one that the request referred to."""
    decision, used = Decision(Effect.DENY, _because(caller, server), _READING), used_by(params)
    arguments = {key: value for key, value in params.items() if key != "_meta"}
    with suppress(CallRefused), recording(trail, caller, method) as record:
        record.about(server, used, arguments=arguments)
        record.decided(decision)
        raise call_refusal(decision, server, used)


def _because(caller: Caller, server: str) -> str:
    limits = (caller.principal.servers, caller.narrowed)
    is_its_own = any(servers is not None and server not in servers for servers in limits)
    return THE_CALLERS_SERVERS if is_its_own else A_RULE


CALL = "tools/call"

Message = dict[str, Any]
"""A JSON-RPC message."""

Outcome = dict[str, Any] | ErrorData
"""The result of a request, or its error."""


def response(request_id: RequestId | None, outcome: Outcome) -> Message:
    if isinstance(outcome, ErrorData):
        error = {"code": outcome.code, "message": outcome.message}
        known = error if outcome.data is None else {**error, "data": outcome.data}
        return {"jsonrpc": "2.0", "id": request_id, "error": known}
    return {"jsonrpc": "2.0", "id": request_id, "result": outcome}


def notice(method: str, params: Mapping[str, Any] | None) -> Message:
    """A notification."""
    said: Message = {"jsonrpc": "2.0", "method": method}
    return {**said, "params": params} if params is not None else said


def is_response(message: Message) -> bool:
    return "method" not in message


def is_large(message: Message) -> bool:
    """Whether the message has to be written in pieces."""
    result = message.get("result")
    return result is not None and has_large(result)


def encoded(message: Message) -> bytes:
    try:
        return pydantic_core.to_json(message, inf_nan_mode="null")
    except ValueError:
        # Half a surrogate pair is not valid text, but JSON can carry it.
        return json.dumps(message, default=pydantic_core.to_jsonable_python).encode()


def pieces(message: Message) -> Iterator[bytes]:
    """The JSON of a message with large values, in pieces, so that it never exists as a whole."""
    large = Placeholders()
    yield from large.filled(encoded({**message, "result": large.take(message["result"])}))


_FIELD = rb'\s*"(?:jsonrpc|method|id)"\s*:\s*(?:"[^"\\]{0,200}"|-?\d{1,18})\s*'
_HEAD = regex(rb"\s*\{(?:" + _FIELD + rb",)*")
_TAIL = regex(rb"(?:," + _FIELD + rb")*\}\s*$")
_ID = regex(rb'"id"\s*:\s*(?:"([^"\\]{0,200})"|(-?\d{1,18}))')


def id_of(line: OverlongLine) -> RequestId | None:
    """The id of a request of which only the start and end are known; clients write the id first or last."""
    ends = [_HEAD.match(line.head), _TAIL.search(line.tail)]
    found = next((found for end in ends if end is not None and (found := _ID.search(end.group())) is not None), None)
    if found is None:
        return None
    return int(found.group(2)) if found.group(2) else found.group(1).decode("utf-8", "replace")
