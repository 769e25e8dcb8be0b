"""An object together with its JSON, so that what is large is written once, off the event loop, and not for each use.

Made by the gateway for large arguments. The audit hashes the JSON, the cache is keyed by it, and the peer of a server
sends it; whoever does not know of it has an ordinary object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic_core

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
