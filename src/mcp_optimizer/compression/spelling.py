"""How a signature spells values and types: literals, bounds, and brackets where a type would be misread. Pure."""

from __future__ import annotations

from typing import Any

from mcp_optimizer.largejson.text import compact

_LAST_SAFE_INTEGER = 2**53 - 1


def bound(value: Any) -> Any:
    """A bound that means something: not the limits of safe integers, which generators write everywhere."""
    return None if isinstance(value, int | float) and abs(value) >= _LAST_SAFE_INTEGER else value


def is_one_object(text: str) -> bool:
    return text.startswith("{") and not _top_level(text, "|&") and text.endswith("}")


def enclosed(text: str) -> str:
    """A type in brackets if what follows would otherwise apply to only a part of it."""
    return f"({text})" if _top_level(text, "|& ") else text


def _top_level(text: str, marks: str) -> bool:
    """Whether one of the marks is outside all brackets and quotes."""
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if quoted:
            quoted = escaped or letter != "'"
            escaped = letter == "\\" and not escaped
        elif letter == "'":
            quoted = True
        elif letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif depth == 0 and letter in marks:
            return True
    return False


def literal(value: Any) -> str:
    """A value as it would be sent, but with single quotes, because double ones must be escaped inside JSON."""
    shown = compact(value)
    if not isinstance(value, str):
        return shown
    return "'" + shown[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
