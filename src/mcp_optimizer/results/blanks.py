"""A result with other texts: without the blanks in its JSON, or with the part of a text that is shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.results.encodings import minified
from mcp_optimizer.results.reading import NO_JSON, PARSED, Reading, Slot, Text, compact, decoded, json_value

_JSON_STARTS = frozenset("{[ \n")
_BLANKS_IN_JSON = ("\n", '": ', '", ', "}, ")


def without_blanks(reading: Reading) -> Reading:
    """The same result with its JSON texts minified; very large ones stay unchanged."""
    texts = {slot.block: text for slot in reading.slots if (text := _minified(reading, slot)) is not None}
    if not texts:
        return reading
    blocks = [with_text(block, texts[at]) if at in texts else block for at, block in enumerate(reading.blocks)]
    return Reading({**reading.result, "content": blocks})


def _minified(reading: Reading, slot: Slot) -> str | None:
    text = slot.text
    if (
        isinstance(text, LargeText)
        or len(text) > PARSED
        or text[:1] not in _JSON_STARTS
        or not any(mark in text for mark in _BLANKS_IN_JSON)
    ):
        return None
    value = reading.value if len(reading.slots) == 1 else json_value(text)
    if value is NO_JSON:
        return None
    small = decoded(minified(text.encode("utf-8", "surrogatepass")))
    return small if len(small) < len(text) else None


def with_text(block: Any, text: str) -> Any:
    if isinstance(block, Mapping) and isinstance(block.get("text"), Text):
        return {**block, "text": text}
    if isinstance(block, Mapping) and isinstance(block.get("resource"), Mapping):
        return {**block, "resource": {**block["resource"], "text": text}}
    # A link: unchanged, or, if it was cut, as its remaining text.
    return block if text == compact(block) else {"type": "text", "text": text}
