"""The small part of a large request's parameters that the SDK reads; the whole bypasses it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHORT = 10_000
"""Characters of a text that is left in."""


def outlined(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a large request's parameters that the SDK reads; the rest is passed by `PARAMS_KEY`."""
    return {name: value if name == "_meta" else _short(value) for name, value in params.items()}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if _is_short(key) and _is_short(item)}
    return value if _is_short(value) else None


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _SHORT)
