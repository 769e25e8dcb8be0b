"""What the gateway itself says in a result: how it was cut, what was selected. For models, not a part of the result.

A result that the gateway says something of is text alone, because no part of it may say less than another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.results.pages import Pieces
from mcp_optimizer.results.reading import Reading
from mcp_optimizer.results.tool_limits import Extent


class Notice(dict[str, Any]):
    """A text block of ours. On the wire it is one like any other; no server can send this type."""


def notice_block(text: str) -> Notice:
    return Notice(type="text", text=text)


def cut_notice(pieces: Pieces, next_offset: int, result_id: str) -> str:
    """What a model needs to know about a cut result, in one line."""
    return (
        f"[Cut: {next_offset:,} of {pieces.count:,} {pieces.unit} shown. Read on with read_result("
        f'result_id="{result_id}", offset={next_offset}); its select (JMESPath) or search narrows it.]'
    )


def and_told(result: Mapping[str, Any], notice: str) -> dict[str, Any]:
    """The result, with a notice after it. All of it is text: many clients give a model structured content instead of
    the text, and it would not read the notice.
    """
    in_text = Reading(result).in_text()
    return {**in_text, "content": [*in_text.get("content", ()), notice_block(notice)]}


def with_line(result: Mapping[str, Any], extent: Extent) -> dict[str, Any]:
    """The result, with a line after it if the model has to know of its tool's limit."""
    return and_told(result, line) if (line := extent.line) else dict(result)
