"""Spells values and types for signatures: literals, bounds, and brackets where a type would be misread. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcp_optimizer.largejson.compact_json import compact

_LAST_SAFE_INTEGER = 2**53 - 1


def bound(value: Any) -> Any:
    """A meaningful bound; None for the limits of safe integers, which generators write everywhere."""
    return None if isinstance(value, int | float) and abs(value) >= _LAST_SAFE_INTEGER else value


def is_one_object(text: str) -> bool:
    return text.startswith("{") and not _top_level(text, "|&") and text.endswith("}")


def enclosed(text: str) -> str:
    """A type in brackets if the text after it would otherwise apply to only a part of it."""
    return f"({text})" if _top_level(text, "|& ") else text


def _top_level(text: str, marks: str) -> bool:
    """Whether one of the marks occurs outside all brackets and quotes."""
    return any(depth == 0 and letter in marks for _, letter, depth in _unquoted(text))


def end_of_brackets(text: str) -> int:
    """The end of the brackets that a text begins with; 0 if they are not closed."""
    return next((at + 1 for at, letter, depth in _unquoted(text) if depth == 0 and letter in "}])"), 0)


def _unquoted(text: str) -> Iterator[tuple[int, str, int]]:
    """The letters outside quotes, each with its position and the number of brackets open after it."""
    depth, quoted, escaped = 0, False, False
    for at, letter in enumerate(text):
        if quoted:
            quoted = escaped or letter != "'"
            escaped = letter == "\\" and not escaped
        elif letter == "'":
            quoted = True
        else:
            depth += (letter in "{[(") - (letter in "}])")
            yield at, letter, depth


def literal(value: Any) -> str:
    """A value as JSON but with single quotes, because double quotes must be escaped inside JSON."""
    shown = compact(value)
    if not isinstance(value, str):
        return shown
    return "'" + shown[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
