"""JSON as it is sent: no blank too many, and of whatever can be sent at all. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pydantic_core


def compact(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """The shortest JSON text of a value; `default` says what stands for something that only pydantic can write."""
    try:
        return pydantic_core.to_json(value).decode("utf-8")
    except (ValueError, UnicodeDecodeError, pydantic_core.PydanticSerializationError):
        # Half a surrogate pair, or a number that JSON does not have.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)


def compact_bytes(value: Any) -> bytes:
    """The same in UTF-8, half a surrogate pair included."""
    try:
        return pydantic_core.to_json(value)
    except (ValueError, pydantic_core.PydanticSerializationError):
        return compact(value).encode("utf-8", "surrogatepass")


def parsed(data: bytes | bytearray | str) -> Any:
    """Any JSON value; raises ValueError."""
    try:
        return pydantic_core.from_json(data, cache_strings="keys")
    except (ValueError, TypeError):
        # Half a surrogate pair, again, with which a string is no string to the fast reader; or JSON nested more deeply
        # than it goes.
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None
