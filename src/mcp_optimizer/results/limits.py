"""Cuts a result to its limits without losing anything: the pieces contain the rest.

A client may give its model either the texts or the structured content, so each must fit `max_tokens`, in the encoding
used for counting. A result that gets a notice is text alone. Pure; the caller keeps the pieces.
"""

from __future__ import annotations

from dataclasses import replace

from mcp_optimizer.results.cutting import Cutting, are_within, around_documents
from mcp_optimizer.results.document import read_document
from mcp_optimizer.results.limit_values import STRUCTURED, Limited, ResultLimits
from mcp_optimizer.results.measure import Measure
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.notices import with_line
from mcp_optimizer.results.pages import Pieces, divide
from mcp_optimizer.results.reading import NO_JSON, PARSED, Reading
from mcp_optimizer.results.room import Count
from mcp_optimizer.results.tool_limits import Extent, Judge, ShownRows, no_limit, objects_in, only_list

_MOST_PER_TOKEN = 12
"""Bytes that a token has at most, in texts that are not made to have more."""


def limited(
    reading: Reading,
    limits: ResultLimits,
    count: Count,
    result_id: str,
    judge: Judge = no_limit,
    *,
    compact_json: bool = True,
) -> Limited:
    """The result within its limits. `judge` says whether the tool itself cut it.

    With `compact_json`, JSON texts are shown and measured without whitespace; the pieces stay as the server sent them.
    """
    extent = judge(around_of(reading)) if is_parsed(reading) else None
    if extent is not None:
        limits = limits.with_room_for(extent)
        if extent.line and reading.structured is not NO_JSON:
            reading = Reading(reading.in_text())
        if not compact_json and not limits.are_set:
            return _whole(reading, extent, reading.data)
    measure = Measure(count)
    cutting = Cutting(reading, limits, measure, result_id, compact_json=compact_json)
    if extent is not None:
        data = reading.data
        too_many = bool(limits.max_rows and data and (data.row_count or 0) > limits.max_rows)
        shown = None if cutting.is_surely_over() else cutting.whole()
        is_within = shown is not None and are_within(shown, limits, measure)
        if shown is not None and is_within and not too_many:
            return _whole(shown, extent, data)
    elif not limits.are_set and len(reading.slots) > 1:
        # Nothing to cut, and several texts are not a table.
        return Limited(dict(cutting.whole().result), None)
    else:
        is_within = not limits.max_tokens or reading.size <= limits.max_tokens * _MOST_PER_TOKEN
    return cutting.within(limits if is_within else limits.of_a_preview).limited(judge, extent)


def _whole(shown: Reading, extent: Extent, data: DataInfo | None) -> Limited:
    return Limited(with_line(shown.result, extent), data, shown=None if extent.line else shown, extent=extent)


def is_parsed(reading: Reading) -> bool:
    """Whether a result is so small that its JSON is parsed."""
    return reading.size <= PARSED and not reading.has_large_structure


def around_of(reading: Reading) -> ShownRows:
    """What a result shows of a list, if it is small enough to be parsed."""
    if reading.result.get("isError"):
        return ShownRows()
    values = [value for value in (reading.structured, reading.value) if isinstance(value, dict | list)]
    objects = tuple(each for value in values for each in objects_in(value))
    is_shown = not reading.slots or reading.value is not NO_JSON
    if (data := reading.data) is not None and data.row_count is not None:
        return ShownRows(data.row_count, objects, is_shown=is_shown)
    listed = next((count for value in values if (count := only_list(value)) is not None), None)
    # A server may send each element as a text.
    several = len(reading.slots) if len(reading.slots) > 1 and not values else None
    return ShownRows(several if listed is None else listed, objects, "item", is_shown)


def whole_pieces(reading: Reading, limits: ResultLimits, count: Count, judge: Judge = no_limit) -> Pieces:
    """A complete result in pieces, with what `judge` says of it."""
    documents = [(slot.block, read_document(slot.text)) for slot in reading.slots]
    if not documents:
        documents = [(STRUCTURED, read_document(reading.structured_text, reading.structured))]
    pieces = divide(documents, limits.piece_tokens, Measure(count))
    small = around_of(reading) if is_parsed(reading) else around_documents(documents)
    return replace(pieces, remark=judge(small).remark())
