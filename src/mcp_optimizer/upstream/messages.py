"""Checks every message from a server, once, and returns typed values. Called by the peer. Pure.

Servers send all kinds of invalid JSON-RPC. After this check there are only responses, questions and notifications whose
parts have the right types; everything else is `Invalid`, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from mcp_optimizer.domain.protocol import INTERNAL_ERROR
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.limits import Limits
from mcp_optimizer.upstream.request_errors import RpcError

_LONGEST_ID = 1_000
_LONGEST_METHOD = 200
_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})

Id = int | float | str
"""The id of a server's own request. The reply returns it exactly as sent."""


class Answer(NamedTuple):
    """The end of one of our requests: a result, or an error."""

    number: int
    result: dict[str, Any]
    error: RpcError | None = None


class Question(NamedTuple):
    """A request from the server."""

    id: Id
    method: str
    params: Mapping[str, Any]


class Notification(NamedTuple):
    method: str
    params: Mapping[str, Any]


class Invalid(NamedTuple):
    """Not a valid message. `id` is that of an invalid request, which gets an error."""

    why: str
    id: Id | None = None


def read_message(message: Any, limits: Limits) -> Answer | Question | Notification | Invalid:
    """One message from a server, or why it is invalid."""
    if not isinstance(message, dict):
        return Invalid("a message is not an object")
    method = message.get("method")
    if method is None:
        return _answer(message, limits)
    if not isinstance(method, str) or len(method) > _LONGEST_METHOD or not method.isprintable():
        # A lone surrogate would break the stream of the client that it is passed to.
        return Invalid("the method of a message is not a string")
    return _question(message, method) if "id" in message else _notification(message, method)


def _question(message: Mapping[str, Any], method: str) -> Question | Invalid:
    asked = message["id"]
    if not is_id(asked):
        return Invalid("the id of a request is neither a string nor a number")
    params = _params(message)
    if params is None:
        return Invalid("the params of a request are not an object", asked)
    return Question(asked, method, params)


def _notification(message: Mapping[str, Any], method: str) -> Notification | Invalid:
    params = _params(message)
    if params is None:
        return Invalid("the params of a notification are not an object")
    is_counted = number(params.get("progress")) and is_id(params.get("progressToken"))
    if method == "notifications/progress" and not is_counted:
        return Invalid("a progress notification has no number or no token")
    level = params.get("level")
    if method == "notifications/message" and not (isinstance(level, str) and level in _LEVELS):
        return Invalid("a log message has no known level")
    return Notification(method, params)


def _params(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    params = message.get("params")
    if params is None or params == []:
        # PHP encodes an empty object as `[]`.
        return {}
    return params if isinstance(params, dict) else None


def _answer(message: Mapping[str, Any], limits: Limits) -> Answer | Invalid:
    asked = message.get("id")
    if type(asked) is not int and (asked := _our_number(asked)) is None:
        return Invalid("a response has an id that no request had")
    error = message.get("error")
    if error is not None:
        return Answer(asked, {}, _error(error, limits))
    result = message.get("result")
    if isinstance(result, dict):
        return Answer(asked, result)
    if result is None or result == []:
        return Answer(asked, {})
    return Answer(asked, {}, RpcError(INTERNAL_ERROR, "The server's result is not an object."))


def _error(error: Any, limits: Limits) -> RpcError:
    details = error if isinstance(error, dict) else {"message": error}
    code, message, data = details.get("code"), details.get("message"), details.get("data")
    text = message if isinstance(message, str) else "" if message is None else compact(message)
    text = shortened(text, limits.error_text) or "no message"
    if data is not None and len(compact(data)) > 10 * limits.error_text:
        text, data = f"{text} (data left out: too large)", None
    return RpcError(code if type(code) is int and abs(code) < 2**53 else INTERNAL_ERROR, text, data)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_id(value: Any) -> bool:
    """Whether a value can be a request id: hashable, finite and short."""
    return (isinstance(value, str) and len(value) <= _LONGEST_ID) or number(value)


def number(value: Any) -> bool:
    """Whether a value is a JSON number. Excludes true and false, which Python counts as numbers."""
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))


def _our_number(value: Any) -> int | None:
    """The number of one of our requests if it was returned as a string, or as a float such as 7.0."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def capabilities_of(declared: Any) -> dict[str, dict[str, Any]]:
    """The declared capabilities, each as an object; some servers write an empty one as `[]` or `true`."""
    if not isinstance(declared, dict):
        return {}
    return {
        name: details if isinstance(details, dict) else {}
        for name, details in declared.items()
        if details is not None and details is not False
    }
