"""The one gate for clients: checks everything a client sends, once, on every transport and in both eras.

`read` turns bytes into one JSON-RPC message or a refusal, for stdin and for HTTP bodies. `check`, the first middleware
of the MCP server, checks parameters against the protocol before any other code sees them. Refused messages get the
protocol's error and are counted. Knows no tools and no servers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import mcp_types as types
import pydantic_core
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import SPEC_CLIENT_METHODS, validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.largejson.large_messages import LARGE, read_large
from mcp_optimizer.largejson.spans import structure_marks
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.serving.messages import CALL, Message, TooDeep, response, sendable
from mcp_optimizer.serving.relay.connected import connection_of

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

InTurn = Callable[[Callable[[], JSONRPCMessage]], Awaitable[JSONRPCMessage]]
"""Runs work in a thread; raises InvalidRequest if too much work is waiting already."""

AT_ONCE = 64_000
"""Bytes up to which a message is read at once; a larger one, which may hold half as many values, in a thread."""

_RETRY_AFTER = 1
"""Seconds after which a caller with too much waiting work should try again."""

_BEFORE_INITIALIZE = frozenset({"initialize", "ping"})
_NAMING = ("name", "uri", "cursor")
"""Parameters that name something. They are looked up, compared and repeated, and no real name is that long."""

_LARGEST_ID = 2**63
_PLAIN = frozenset({"name", "arguments", "_meta"})
_PROGRESS = "progressToken"
_ACCEPTED = "mcp-optimizer/accepted"
"""The key in a connection's state that marks a client whose introduction the SDK has accepted."""


class Refused(Exception):
    """Raised for a client's message that is refused. `reason`: one of a few words, for counting."""

    def __init__(self, reason: str, code: int, message: str, request_id: types.RequestId | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.message = message
        self.request_id = request_id
        self.wants_answer = True
        """Whether the sender gets an error; notifications get no response."""
        self.retry_after: int | None = None

    def as_message(self) -> Message:
        data = {"retryAfter": self.retry_after} if self.retry_after is not None else None
        return response(self.request_id, types.ErrorData(code=self.code, message=self.message, data=data))


class Gate:
    """Checks messages of clients."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()

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

    def refuse(self, refused: Refused) -> Refused:
        """Count a refusal that was detected outside the gate, such as a body that does not end."""
        self.count(refused.reason)
        return refused

    def count(self, reason: str) -> None:
        """Count a caller that is turned away before a message is read."""
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
        """Raises Refused for a malformed request or notification."""
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
        """A middleware of the MCP server: passes on what the protocol allows; unexpected exceptions become errors."""
        if ctx.request_id is None:
            return await call_next(ctx)
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
            # Last resort: a bug of ours fails this request and affects no other.
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
        is_plain = ctx.method == CALL and _is_plain(params)
        if not (is_plain and _is_accepted(ctx)):
            self._check_model(ctx.method, ctx.protocol_version, params)
            if is_plain:
                connection_of(ctx).state[_ACCEPTED] = True
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


def _is_plain(params: Mapping[str, Any]) -> bool:
    """Whether a call has the usual plain form, in which the SDK's models could find no error except in a modern
    client's envelope.
    """
    arguments, meta = params.get("arguments"), params.get("_meta")
    if type(params.get("name")) is not str or not params.keys() <= _PLAIN:
        return False
    if arguments is not None and type(arguments) is not dict:
        return False
    return meta is None or (type(meta) is dict and type(meta.get(_PROGRESS, 0)) in (int, str))


def _is_accepted(ctx: Context) -> bool:
    """Whether the client's introduction is known to be valid: none, or that of an earlier call on this connection."""
    return ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS or _ACCEPTED in connection_of(ctx).state


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
    """Clients express "no arguments" in many ways; an empty list is the most common."""
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


_LONG = 10_000
"""Characters from which the parser may have read a text separately."""

_PART = 256 * 1024
_HALF_PAIR = regex("[\ud800-\udfff]")


class NotReadable(ValueError):
    """Describes to the sender why JSON is unreadable. Quotes none of the content."""


def read_json(data: bytes | bytearray, most_values: int) -> Any:
    """Parses the value; raises NotReadable."""
    if len(data) > most_values and structure_marks(data, most_values) > most_values:
        raise NotReadable(f"there are more than {most_values:,} values in it")
    try:
        if len(data) < LARGE:
            value = pydantic_core.from_json(data, allow_inf_nan=False, cache_strings="keys")
        else:
            value = read_large(data, _strict)
    except RecursionError:
        raise NotReadable("it is nested too deeply") from None
    except ValueError as error:
        # The parser's message says what it expected and where, and quotes nothing.
        raise NotReadable(str(error)) from None
    if not _can_be_written(value):
        raise NotReadable("a number in it is too large, or a text is half of a surrogate pair")
    return value


def _strict(data: bytes | bytearray) -> Any:
    return pydantic_core.from_json(data, allow_inf_nan=False, cache_strings="keys")


def _can_be_written(value: Any) -> bool:
    """Whether a value can be written: rejects 1e999, which is read as infinity, and long texts with half surrogate
    pairs, which the parser does not check.
    """
    level = [value]
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if len(item) > _LONG and not item.isascii() and _has_half_pair(item):
                    return False
            elif kind is dict:
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is float and not math.isfinite(item):
                return False
        level = below
    return True


def _has_half_pair(text: str) -> bool:
    """Searches in parts, because each search holds the interpreter."""
    return any(_HALF_PAIR.search(text, at, at + _PART) for at in range(0, len(text), _PART))
