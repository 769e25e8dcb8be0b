"""The arguments of a call as people and scripts give them: JSON, a file, stdin, or `key=value`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mcp_optimizer.errors import ConfigurationError

_MOST_BYTES = 10_000_000


def given_arguments(positional: str | None, option: str | None, *, is_object: bool) -> Any:
    """The arguments' JSON as text; with `is_object`, for adding to, as an object."""
    if positional is not None and option is not None:
        raise ConfigurationError("The arguments are given twice: after the tool's name and with --args.")
    text = positional if option is None else _read(option)
    if not is_object:
        return "{}" if text is None else text
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"The arguments are not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ConfigurationError("The arguments are not a JSON object, so --arg cannot add to them.")
    return value


def pairs(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`--arg key=value`, as often as it was given."""
    for one in given:
        if "=" not in one or one.startswith("="):
            # Without the value, which may be a secret.
            raise ConfigurationError("--arg takes key=value, such as --arg limit=5.")
    return tuple((key, value) for key, _, value in (one.partition("=") for one in given))


def _read(option: str) -> str:
    if option == "-":
        return _bounded(sys.stdin.buffer, "stdin")
    if not option.startswith("@"):
        return option
    path = Path(option[1:]).expanduser()
    try:
        with path.open("rb") as file:
            return _bounded(file, str(path))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the arguments from {path}: {error.strerror}.") from error


def _bounded(file: BinaryIO, name: str) -> str:
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigurationError(f"The arguments in {name} are longer than {_MOST_BYTES:,} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"The arguments in {name} are not UTF-8.") from None
