"""Messages to the client on stdio as the lines they are written as. Pure."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

Outcome = dict[str, Any] | ErrorData
"""The result of a request, or its error."""


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
