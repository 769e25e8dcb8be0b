"""The lines of stdio: messages to the client as they are written, and the id in one that is too long to read. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import pydantic_core
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

from mcp_optimizer.relay.sdk_calls import Outcome
from mcp_optimizer.upstream.lines import Overlong


def line_of(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "surrogatepass") + b"\n"
    except ValueError:
        # Half a surrogate pair is not valid text, but JSON can carry it.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def response_line(request_id: RequestId, result: dict[str, Any]) -> bytes:
    """The same line as of a message, without making one. Everything in a result can be written."""
    message = {"jsonrpc": "2.0", "id": request_id, "result": result}
    return pydantic_core.to_json(message, inf_nan_mode="null") + b"\n"


def as_message(request_id: RequestId, outcome: Outcome) -> JSONRPCResponse | JSONRPCError:
    if isinstance(outcome, ErrorData):
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=outcome)
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=outcome)


_FIELD = rb'\s*"(?:jsonrpc|method|id)"\s*:\s*(?:"[^"\\]{0,200}"|-?\d{1,18})\s*'
_HEAD = re.compile(rb"\s*\{(?:" + _FIELD + rb",)*")
_TAIL = re.compile(rb"(?:," + _FIELD + rb")*\}\s*$")
_ID = re.compile(rb'"id"\s*:\s*(?:"([^"\\]{0,200})"|(-?\d{1,18}))')


def id_of(line: Overlong) -> RequestId | None:
    """The id of a request of which only the ends are known; clients write it first or last."""
    ends = [_HEAD.match(line.head), _TAIL.search(line.tail)]
    found = next((found for end in ends if end is not None and (found := _ID.search(end.group())) is not None), None)
    if found is None:
        return None
    return int(found.group(2)) if found.group(2) else found.group(1).decode("utf-8", "replace")
