"""One short line of text, which is most of what tools say: nothing to cut, no table, nothing to write shorter. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.results.limit_values import ResultLimits

_SHORT = 4_000
"""Characters up to which a line is short."""


def only_line(result: Mapping[str, Any], limits: ResultLimits) -> str | None:
    """The line that is all of a result, if it is plain text and surely within its limits."""
    content = result.get("content")
    if type(content) is not list or len(content) != 1 or result.get("structuredContent") is not None:
        return None
    block = content[0]
    if type(block) is not dict or block.get("type") != "text" or "resource" in block:
        return None
    text = block.get("text")
    if type(text) is not str or len(text) > _SHORT or "\n" in text or text.lstrip()[:1] in ("{", "["):
        return None
    # No encoding has more tokens than bytes.
    fits = not limits.max_tokens or (text.isascii() and len(text) <= limits.tokens)
    return text if fits else None
