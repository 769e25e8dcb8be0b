"""Cuts a result to its limits without losing anything: the pieces contain the rest.

A client may give its model either the texts or the structured content, so both must fit `max_tokens`, notice included,
in the encoding used for counting. Pure; the caller keeps the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_optimizer.compression.validation import SchemaCheck
from mcp_optimizer.results.cutting import Cutting, anything, are_within
from mcp_optimizer.results.document import read_document
from mcp_optimizer.results.limit_values import STRUCTURED, Limited, ResultLimits
from mcp_optimizer.results.measure import Measure
from mcp_optimizer.results.pages import Pieces, divide
from mcp_optimizer.results.reading import PARSED, Reading
from mcp_optimizer.results.room import Count

_MOST_PER_TOKEN = 12
"""Bytes that a token has at most, in texts that are not made to have more."""


def limited(
    reading: Reading,
    limits: ResultLimits,
    count: Count,
    result_id: str,
    is_valid: Callable[[Any], bool] | None = None,
    *,
    compact_json: bool = True,
) -> Limited:
    """The result within its limits. `is_valid` checks structured content against the tool's schema.

    With `compact_json`, JSON texts are shown and measured without whitespace; the pieces stay as the server sent them.
    """
    is_small = reading.size <= PARSED and not reading.has_large_structure
    if is_small and not compact_json and not limits.are_set:
        return Limited(dict(reading.result), reading.data(), shown=reading)
    measure = Measure(count)
    cutting = Cutting(reading, limits, measure, result_id, is_valid or anything, compact_json=compact_json)
    if is_small:
        data = reading.data()
        too_many = bool(limits.max_rows and data and (data.row_count or 0) > limits.max_rows)
        shown = None if cutting.is_surely_over() else cutting.whole()
        is_within = shown is not None and are_within(shown, limits, measure)
        if shown is not None and is_within and not too_many:
            return Limited(dict(shown.result), data, shown=shown)
        is_over = True
    elif not limits.are_set and len(reading.slots) > 1:
        # Nothing to cut, and several texts are not a table.
        return Limited(dict(cutting.whole().result), None)
    else:
        is_within = not limits.max_tokens or reading.size <= limits.max_tokens * _MOST_PER_TOKEN
        is_over = False
    return cutting.within(limits if is_within else limits.of_a_preview).limited(is_over=is_over)


def whole_pieces(reading: Reading, limits: ResultLimits, count: Count) -> Pieces:
    """A complete result in pieces."""
    documents = [(slot.block, read_document(slot.text)) for slot in reading.slots]
    if not documents:
        documents = [(STRUCTURED, read_document(reading.structured_text, reading.structured))]
    return divide(documents, limits.piece_tokens, Measure(count))


def validity(schema: Mapping[str, Any] | None, most_steps: int) -> Callable[[Any], bool] | None:
    """Whether structured content matches its tool's schema; a broken schema accepts everything."""
    if schema is None:
        return None

    def is_valid(value: Any) -> bool:
        return SchemaCheck(schema, most_steps).admits(value)

    return is_valid
