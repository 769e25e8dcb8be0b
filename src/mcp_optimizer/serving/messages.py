"""Messages to clients and their JSON, and the id in a message that is too long to read. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic_core
from mcp_types import ErrorData, RequestId

from mcp_optimizer.largejson.raw import Placeholders, has_large
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine

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
