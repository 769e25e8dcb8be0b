"""Reads single values of an entry that describes a server, or says what is wrong with them. Pure; knows no keys.

Called where entries of any program become ours. A message never quotes a value: it may be a misplaced secret.
"""

from __future__ import annotations

from typing import Any


class UnusableEntry(Exception):
    """An entry that cannot be used. The message says why."""


def text_of(value: Any, where: str) -> str:
    """A value that must be a text."""
    if not isinstance(value, str):
        raise UnusableEntry(f'"{where}" must be a string, not {type(value).__name__}')
    return value


def texts(value: Any, key: str) -> list[str]:
    """A list of texts; numbers are written as text."""
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise UnusableEntry(f'"{key}" must be a list of strings')
    return [str(item) for item in value]


def mapping(value: Any, key: str) -> dict[str, str]:
    """Texts by name, without null values."""
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float | None) for item in value.values()):
        raise UnusableEntry(f'"{key}" must be an object of strings')
    return {name: _plain(item) for name, item in value.items() if item is not None}


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
