"""The JSON of a result, to learn its shape from; of a large one only the beginning, so that it takes no time. Pure."""

from __future__ import annotations

from typing import Any

import pydantic_core

from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.results.reading import NO_JSON, Reading

_READ = 32 * 1024
"""Characters that are parsed."""


def example(reading: Reading) -> Any:
    """What the result contains, or NO_JSON."""
    structured = reading.structured
    if isinstance(structured, LargeValue):
        return _beginning(bytes(structured.json[:_READ]))
    if structured is NO_JSON or _is_wrapped_text(structured):
        found = _only_text(reading)
        return structured if found is NO_JSON else found
    return structured


def _is_wrapped_text(structured: Any) -> bool:
    """Python servers wrap a text like this; it may well be JSON."""
    return isinstance(structured, dict) and len(structured) == 1 and isinstance(structured.get("result"), str)


def _only_text(reading: Reading) -> Any:
    if len(reading.slots) != 1:
        return NO_JSON
    text = reading.slots[0].text
    if isinstance(text, LargeText):
        return _beginning(text.beginning(_READ).encode())
    # Half a surrogate pair is no reason to learn nothing.
    return reading.value if len(text) <= _READ else _beginning(text[:_READ].encode("utf-8", "replace"))


def _beginning(text: bytes) -> Any:
    """The values of a JSON text that ends somewhere in the middle, without those that are not complete."""
    try:
        found = pydantic_core.from_json(text, allow_partial=True)
    except ValueError:
        return NO_JSON
    inner = found
    while isinstance(inner, dict | list) and inner:
        last = next(reversed(inner)) if isinstance(inner, dict) else len(inner) - 1
        if isinstance(inner, list) and last:
            # A list shows with its other elements which keys they have.
            inner.pop()
            break
        inner = inner[last]
    return found if isinstance(found, dict | list) else NO_JSON
