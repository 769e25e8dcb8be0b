"""Packs a tool's result into one text for the script; the worker unpacks it. Pure.

Contains the structured content if the tool declares it, otherwise the text, as JSON where it is JSON. The first letter
is `j` for JSON or possible JSON, `t` for plain text, `r` for JSON in an envelope: the script gets the content of the
envelope, as the tool's stub describes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Any

from mcp_optimizer.catalog.learned_shapes import has_envelope
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.results.result_texts import NO_JSON, Reading, Text, size_of

_INLINE = 64 * 1024
"""Characters that are packed directly. Larger results are packed in a thread."""


class TooLarge(Exception):
    """The result has more bytes than a script may receive."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")


class DeclaredResult(Enum):
    """The kind of result that a tool's output schema declares."""

    NOTHING = "nothing"
    RESULT = "result"
    ENVELOPE = "envelope"


def declared_by(definition: Definition) -> DeclaredResult:
    """The kind of result that a tool declares."""
    if definition.details.output_schema is None:
        return DeclaredResult.NOTHING
    return DeclaredResult.ENVELOPE if has_envelope(definition) else DeclaredResult.RESULT


async def packed(result: Mapping[str, Any], declared: DeclaredResult, most: int) -> str:
    """The packed text for the worker; raises TooLarge."""
    reading = Reading(result)
    size = _size(reading)
    if size > most:
        raise TooLarge(size)
    if size > _INLINE:
        return await asyncio.to_thread(_packed, reading, declared)
    return _packed(reading, declared)


def _size(reading: Reading) -> int:
    structured = reading.structured
    large = len(structured.json) if isinstance(structured, RawJson) else 0
    return max(reading.size, large)


def _packed(reading: Reading, declared: DeclaredResult) -> str:
    if reading.structured is not NO_JSON and (declared is not DeclaredResult.NOTHING or not reading.slots):
        kind = "r" if declared is DeclaredResult.ENVELOPE else "j"
        return f"{kind}{_valid(_plain(reading.structured_text))}"
    texts = [_plain(slot.text) for slot in reading.slots]
    if len(texts) == 1 and texts[0].lstrip(" \t\r\n")[:1] in ("{", "["):
        return f"j{_valid(texts[0])}"
    if not texts and reading.blocks:
        return f"t{_kinds(reading)}"
    return f"t{_valid(chr(10).join(texts))}"


def error_text(result: Mapping[str, Any], longest: int) -> str:
    """The tool's own description of its failure."""
    reading = Reading(result)
    if size_of_all(reading.texts) > 10 * longest:
        text = "".join(_beginning(one, longest) for one in reading.texts[:3])
    else:
        text = "\n".join(map(_plain, reading.texts))
    text = _valid(text.strip()) or "The tool failed and did not say why."
    return text if len(text) <= longest else f"{text[:longest]}…"


def size_of_all(texts: list[Text]) -> int:
    return sum(map(size_of, texts))


def _beginning(text: Text, size: int) -> str:
    return text[:size] if isinstance(text, str) else text.beginning(size)


def _plain(text: Text) -> str:
    return text if isinstance(text, str) else text.parsed()


def _valid(text: str) -> str:
    """The text without unpaired surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _kinds(reading: Reading) -> str:
    kinds = [str(block.get("type", "?"))[:40] for block in reading.blocks if isinstance(block, Mapping)]
    return f"[{', '.join(kinds[:10])}: not text]"
