"""Writes JSON as it is sent, without whitespace, and reads it, including values that the fast library refuses.

`Written` is an object together with its JSON, so a large object is written once, off the event loop, and not for each
use: the audit hashes that JSON, the cache key contains it, and the server's peer sends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pydantic_core


def compact(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """The shortest JSON text of a value; `default` converts values that only pydantic can write."""
    try:
        return pydantic_core.to_json(value).decode("utf-8")
    except (ValueError, UnicodeDecodeError, pydantic_core.PydanticSerializationError):
        # Half a surrogate pair, or a number that JSON cannot express.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)


def compact_bytes(value: Any) -> bytes:
    """The shortest JSON of a value in UTF-8, including half surrogate pairs."""
    try:
        return pydantic_core.to_json(value)
    except (ValueError, pydantic_core.PydanticSerializationError):
        return compact(value).encode("utf-8", "surrogatepass")


def parsed(data: bytes | bytearray | str) -> Any:
    """Parse any JSON value; raises ValueError."""
    try:
        return pydantic_core.from_json(data, cache_strings="keys")
    except (ValueError, TypeError):
        # Half a surrogate pair, which the fast parser refuses, or JSON nested more deeply than it supports.
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None


_WORTH_IT = 256 * 1024
"""Bytes of JSON up to which writing it again takes only a few milliseconds."""


class Written(dict[str, Any]):
    """An object with its JSON in UTF-8. Must not be changed; a changed copy is an ordinary object."""

    def __init__(self, value: Mapping[str, Any], json: bytes) -> None:
        super().__init__(value)
        self.json = json


def written(value: Any) -> Any:
    """The value, with its JSON if it is a large object. A value that cannot be written is returned unchanged; a later
    step refuses it.
    """
    if type(value) is not dict:
        return value
    try:
        json = pydantic_core.to_json(value)
    except ValueError:
        return value
    return Written(value, json) if len(json) > _WORTH_IT else value
