"""Reads the arguments of the gateway's own tools as models write them: lists for texts, texts for numbers. Pure.

Called by `own_tools`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.limits import Limits

_FARTHEST = 2**62


def text_in(arguments: Mapping[str, Any], key: str, most: int, *, required: bool, between: str) -> str:
    """A text, of at most so many characters; several are joined."""
    value = arguments.get(key)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = between.join(value)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise InvalidRequest(f"{key} is required and must be text." if required else f"{key} must be text.")
    if len(value) > most:
        raise InvalidRequest(f"{key} may have {most:,} characters, not {len(value):,}.")
    return value


def number_in(arguments: Mapping[str, Any], key: str) -> int | None:
    """A whole number, or None if there is none."""
    value = arguments.get(key)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidRequest(f"{key} must be a whole number, not {quoted(value)}.")
    # None of our numbers is that large, and one of ten thousand digits cannot even be written.
    return value if value is None else max(-_FARTHEST, min(value, _FARTHEST))


def names_in(arguments: Mapping[str, Any], key: str, limits: Limits) -> tuple[str, ...]:
    """A list of names, or one name."""
    value = arguments.get(key)
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"{key} must be a list of names.")
    if any(len(name) > limits.identifier for name in names):
        raise InvalidRequest(f"A name in {key} may have {limits.identifier:,} characters.")
    return tuple(names)
