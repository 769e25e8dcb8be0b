"""JSON as it is sent: without needless blanks, and of anything that can be sent at all.

`Written` is an object together with its JSON, so that what is large is written once, off the event loop, and not for
each use: the audit hashes that JSON, the cache is keyed by it, and the peer of a server sends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


_WORTH_IT = 256 * 1024
"""Bytes of JSON below which writing it again takes less than a few milliseconds."""


class Written(dict[str, Any]):
    """Nobody changes it; a changed copy is an ordinary object again."""

    def __init__(self, value: Mapping[str, Any], json: bytes) -> None:
        super().__init__(value)
        self.json = json


def written(value: Any) -> Any:
    """The same value, with its JSON if it is a large object. What cannot be written is left for others to refuse."""
    if type(value) is not dict:
        return value
    try:
        json = pydantic_core.to_json(value)
    except ValueError:
        return value
    return Written(value, json) if len(json) > _WORTH_IT else value
