"""The one gate for clients: checks everything a client sends, once, on every transport and in both eras.

`read` turns bytes into one JSON-RPC message or a refusal, for stdin and for HTTP bodies. `check`, the first middleware
of the MCP server, checks parameters against the protocol before anything else sees them. Refused messages get the
protocol's error and are counted. Knows no tools and no servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import SPEC_CLIENT_METHODS, validate_client_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.relay.connected import is_http
from mcp_optimizer.relay.sendable import TooDeep, sendable
from mcp_optimizer.serving.client_json import NotReadable, read_json
from mcp_optimizer.serving.plain_calls import PlainCalls

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

InTurn = Callable[[Callable[[], JSONRPCMessage]], Awaitable[JSONRPCMessage]]
"""Has something done in a thread; raises InvalidRequest if too much waits for that already."""

LARGE = 1_000_000
"""Bytes from which the SDK does not get all of a message."""

AT_ONCE = 64_000
"""Bytes up to which a message is read at once; a larger one, which may hold half as many values, in a thread."""

_RETRY_AFTER = 1
"""Seconds after which a caller of whom too much waits should try again."""

PARAMS_KEY = "mcp_optimizer.params"
"""The key under which an HTTP request carries the parameters of a large message; the SDK gets the message
without them.
"""

_BEFORE_INITIALIZE = frozenset({"initialize", "ping"})
_NAMING = ("name", "uri", "cursor")
"""Parameters that name something. They are looked up, compared and repeated, and no real name is that long."""

_LARGEST_ID = 2**63


class Refused(Exception):
    """A client's message that is refused. `reason` is one of a few words, for counting."""

    def __init__(self, reason: str, code: int, message: str, request_id: types.RequestId | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.message = message
        self.request_id = request_id
        self.wants_answer = True
        """Whether the sender gets an error; notifications get no response."""
        self.retry_after: int | None = None

    def as_message(self) -> JSONRPCError:
        more = {"data": {"retryAfter": self.retry_after}} if self.retry_after is not None else {}
        error = types.ErrorData(code=self.code, message=self.message, **more)
        return JSONRPCError(jsonrpc="2.0", id=self.request_id, error=error)


class ClientRequest(NamedTuple):
    """A request, without the SDK's model of it."""

    id: types.RequestId
    method: str
    params: dict[str, Any] | None


class Gate:
    """Checks messages of clients."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self._plain_calls = PlainCalls()

    async def read(self, data: bytes | bytearray, in_turn: InTurn = asyncio.to_thread) -> JSONRPCMessage:
        """The message in these bytes; raises Refused. Large ones are read in a thread, when `in_turn` has one."""
        if len(data) < AT_ONCE:
            return self.read_at_once(data)
        try:
            return await in_turn(partial(self._read, data))
        except Refused as refused:
            self.count(refused.reason)
            raise
        except InvalidRequest as error:
            busy = Refused("busy", types.INTERNAL_ERROR, str(error))
            busy.retry_after = _RETRY_AFTER
            raise self.refuse(busy) from None

    def read_at_once(self, data: bytes | bytearray) -> JSONRPCMessage:
        try:
            return self._read(data)
        except Refused as refused:
            self.count(refused.reason)
            raise

    def request(self, data: bytes) -> ClientRequest | None:
        """The request in a short message, at once; None for any other message, and for one that is to be refused."""
        try:
            message = read_json(data, self.limits.request_values)
            if type(message) is not dict or "method" not in message or "id" not in message:
                return None
            self._check_request(message, len(data))
        except (NotReadable, Refused):
            return None
        return ClientRequest(message["id"], message["method"], message.get("params"))

    def refuse(self, refused: Refused) -> Refused:
        """Count a refusal that was detected elsewhere, such as a body that does not end."""
        self.count(refused.reason)
        return refused

    def count(self, reason: str) -> None:
        """Count somebody who is turned away before a message is read."""
        self.refused[reason] += 1

    def _read(self, data: bytes | bytearray) -> JSONRPCMessage:
        try:
            message = read_json(data, self.limits.request_values)
        except NotReadable as error:
            raise Refused("json", types.PARSE_ERROR, f"Parse error: {error}") from None
        if isinstance(message, list):
            raise Refused("shape", types.INVALID_REQUEST, "Batches are not supported: send one message at a time.")
        if not isinstance(message, dict):
            raise Refused("shape", types.INVALID_REQUEST, "A message must be a JSON object.")
        return self._request(message, len(data)) if "method" in message else self._answer(message)

    def _request(self, message: Mapping[str, Any], size: int) -> JSONRPCMessage:
        self._check_request(message, size)
        method, params = message["method"], message.get("params")
        if "id" not in message:
            return JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        return JSONRPCRequest(jsonrpc="2.0", id=message["id"], method=method, params=params)

    def _check_request(self, message: Mapping[str, Any], size: int) -> None:
        """Raises Refused for a request or a notification that is none."""
        method, params = message["method"], message.get("params")
        if "id" in message and not self._is_id(message["id"]):
            raise self._malformed(message, "The id of a request must be a short string or an integer.")
        if message.get("jsonrpc") != "2.0":
            raise self._malformed(message, 'A message must say "jsonrpc": "2.0".')
        if not isinstance(method, str) or len(method) > self.limits.identifier:
            raise self._malformed(message, "The method of a request must be a short string.")
        if params is not None and not isinstance(params, dict):
            raise self._malformed(message, "The params of a message must be an object.", types.INVALID_PARAMS)
        if method == "initialize" and size > (most := self.limits.introduction_bytes):
            text = f"An initialize request may have {most:,} bytes, not {size:,}."
            raise self._malformed(message, text, types.INVALID_PARAMS)

    def _malformed(self, message: Mapping[str, Any], text: str, code: int = types.INVALID_REQUEST) -> Refused:
        number = message.get("id")
        refused = Refused("shape", code, text, number if self._is_id(number) else None)
        refused.wants_answer = "id" in message
        return refused

    def _answer(self, message: Mapping[str, Any]) -> JSONRPCMessage:
        """An answer to a question. If it is invalid, the server that asked gets an error."""
        number: Any = message.get("id")
        result, error = message.get("result"), message.get("error")
        if not self._is_id(number) or not ("result" in message or "error" in message):
            raise Refused("shape", types.INVALID_REQUEST, "A message must have a method, or be a response with an id.")
        if isinstance(result, dict) and error is None:
            return JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
        code, text = types.INTERNAL_ERROR, "The client's answer is not valid."
        data = None
        if isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str):
            code, text, data = error["code"], error["message"], error.get("data")
        else:
            self.refused["shape"] += 1
        return JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=text, data=data))

    def _is_id(self, value: Any) -> bool:
        if type(value) is int:
            return -_LARGEST_ID < value < _LARGEST_ID
        return isinstance(value, str) and len(value) <= self.limits.identifier

    async def check(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A middleware of the MCP server: passes on what the protocol allows, and lets no exception escape."""
        if ctx.request_id is None:
            return await call_next(ctx)
        if is_http(ctx.request) and PARAMS_KEY in ctx.request.scope:
            ctx = replace(ctx, params=ctx.request.scope[PARAMS_KEY])
        try:
            self._check(ctx)
        except (MCPError, ValidationError):
            self.refused["params"] += 1
            raise
        try:
            result = await call_next(ctx)
            return sendable(result) if isinstance(result, dict) else result
        except MCPError as error:
            raise _sendable_error(error) from error
        except ValidationError:
            raise
        except TooDeep as error:
            raise MCPError(types.INTERNAL_ERROR, f"The result cannot be sent: it is {error}") from None
        except Exception:
            # Last resort: a bug of ours fails this request and affects nothing else.
            logger.exception("Cannot answer a request")
            text = "Internal error of the gateway; see its log."
            raise MCPError(types.INTERNAL_ERROR, text) from None

    def _check(self, ctx: Context) -> None:
        """Raises an MCPError or a ValidationError, which the SDK turns into the protocol's errors."""
        params = ctx.params or {}
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        for name in _NAMING:
            if isinstance(value := params.get(name), str) and len(value) > self.limits.identifier:
                raise _invalid(f"{name} may have {self.limits.identifier:,} characters, not {len(value):,}.")
        if not self._plain_calls.has(ctx.method, ctx.protocol_version, params):
            self._check_model(ctx.method, ctx.protocol_version, params)
        if not is_modern and ctx.method not in _BEFORE_INITIALIZE and ctx.session.client_params is None:
            raise MCPError(types.INVALID_REQUEST, "The first request must be initialize")
        if ctx.method == "subscriptions/listen":
            wanted = params["notifications"].get("resourceSubscriptions") or ()
            if len(wanted) > self.limits.subscriptions:
                raise _invalid(f"A client may watch {self.limits.subscriptions:,} resources at a time.")

    def _check_model(self, method: str, version: str, params: Mapping[str, Any]) -> None:
        if method in SPEC_CLIENT_METHODS:
            try:
                validate_client_request(method, version, _tolerated(method, params))
            except KeyError:
                raise MCPError(types.METHOD_NOT_FOUND, "Method not found", method) from None
        if len(_client_name(method, params)) > self.limits.client_name:
            raise _invalid(f"The name of a client may have {self.limits.client_name:,} characters.")
        self._plain_calls.learn(method, version, params)


def _sendable_error(error: MCPError) -> MCPError:
    """The same error, with the server's content made writable."""
    details = {"message": error.message, "data": error.error.data}
    try:
        written = sendable(details)
    except TooDeep:
        written = {"message": error.message, "data": None}
    return error if written is details else MCPError(error.code, **written)


def _invalid(text: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, text)


def _tolerated(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clients express "no arguments" in many ways; an empty list is the most frequent."""
    if method == "tools/call" and not params.get("arguments"):
        return {key: value for key, value in params.items() if key != "arguments"}
    return params


def _client_name(method: str, params: Mapping[str, Any]) -> str:
    meta = params.get("_meta")
    info = params.get("clientInfo") if method == "initialize" else None
    if info is None and isinstance(meta, Mapping):
        info = meta.get(types.CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else ""
