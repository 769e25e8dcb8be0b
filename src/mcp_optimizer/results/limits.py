"""Cuts a result to its limits and divides the complete result into pieces to be kept. Called by the pipeline. Pure.

A client gives its model either the texts or the structured content, so each of the two must fit `max_tokens`, in the
encoding used for counting. A result that gets a notice is turned into text: a client that shows its model only the
structured content would hide the notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.largejson.spans import first_filled
from mcp_optimizer.results.encodings import Minifier, minified
from mcp_optimizer.results.fitting import GAP, Count, Measure, Shown
from mcp_optimizer.results.item_layout import Fits
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.notices import cut_notice, notice_block, with_line
from mcp_optimizer.results.pages import Pieces, ResultDocument, divide, read_document
from mcp_optimizer.results.result_texts import (
    NO_JSON,
    PARSED,
    Reading,
    Slot,
    Text,
    compact,
    decoded,
    json_value,
    size_of,
)
from mcp_optimizer.results.rows import find_table
from mcp_optimizer.results.tool_limits import (
    COMPLETE,
    LINE_ROOM,
    Extent,
    Judge,
    ShownRows,
    no_limit,
    objects_in,
    only_list,
)
from mcp_optimizer.runtime.lazy import lazy

NOTICE_ROOM = 80
"""Tokens reserved for the notice."""

PIECE_ROOM = 100
"""Tokens that a page needs in addition to a piece: the notice, and the piece's number in a search."""

STRUCTURED = -1
"""The block number of the structured content."""

PAGE_TOKENS = 20_000
"""Maximum tokens of a page of a result that has no token limit."""


@dataclass(frozen=True)
class ResultLimits:
    """The maximum that a result may contain; 0 means no limit."""

    max_rows: int = 0
    max_tokens: int = 0
    reserved: int = 0
    """Tokens reserved for the text that follows the result."""
    preview_tokens: int = 0
    """A smaller maximum, applied to a result that exceeds `max_tokens`."""

    @property
    def are_set(self) -> bool:
        """Whether a result may have to be cut."""
        return bool(self.max_rows or self.max_tokens)

    @property
    def of_a_preview(self) -> ResultLimits:
        """The limits for a result that is too long."""
        shown = min(self.preview_tokens or self.max_tokens, self.max_tokens)
        return replace(self, max_tokens=shown, preview_tokens=0)

    def with_room_for(self, extent: Extent) -> ResultLimits:
        """The limits with tokens reserved for the line about the tool's limit, if there is one."""
        return replace(self, reserved=self.reserved + LINE_ROOM) if self.max_tokens and extent.line else self

    @property
    def piece_tokens(self) -> int:
        """The maximum tokens of a piece."""
        return (self.max_tokens or PAGE_TOKENS) - PIECE_ROOM

    @property
    def tokens(self) -> int:
        """The maximum tokens of the result itself."""
        return max(self.max_tokens - self.reserved, 1) if self.max_tokens else 0


@dataclass(frozen=True)
class LimitedResult:
    """A result within its limits. If it was cut: all its pieces, and the first piece that is not completely shown."""

    result: dict[str, Any]
    data: DataInfo | None
    pieces: Pieces | None = None
    next_offset: int = 0
    shown: Reading | None = None
    """The reading of `result`, if known; saves reading it again."""
    extent: Extent = COMPLETE
    """Whether the tool itself cut it."""


_SHORT_LINE = 4_000
"""Characters up to which a line is short."""


def only_line(result: Mapping[str, Any], limits: ResultLimits) -> str | None:
    """The text of a result that is a single line of plain text and certainly within its limits; otherwise None."""
    content = result.get("content")
    if type(content) is not list or len(content) != 1 or result.get("structuredContent") is not None:
        return None
    block = content[0]
    if type(block) is not dict or block.get("type") != "text" or "resource" in block:
        return None
    text = block.get("text")
    if type(text) is not str or len(text) > _SHORT_LINE or "\n" in text or text.lstrip()[:1] in ("{", "["):
        return None
    # No encoding produces more tokens than bytes.
    fits = not limits.max_tokens or (text.isascii() and len(text) <= limits.tokens)
    return text if fits else None


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


_LIKELY_PER_TOKEN = 2
"""Characters per token up to which a text probably fits."""

_BESIDE = 4
"""Divisor: a small structure next to a long text is shown completely up to this share of the result's tokens."""


def _anything(_text: bytes) -> bool:
    """The `Fits` of a result without a token limit."""
    return True


def are_within(reading: Reading, limits: ResultLimits, measure: Measure) -> bool:
    if not limits.max_tokens:
        return True
    texts = [slot.text for slot in reading.slots]
    # The structured content last and only if needed, because it must first be written as JSON.
    return measure.text_fits(texts, limits.tokens) and measure.text_fits([reading.structured_text], limits.max_tokens)


class Cutting:
    """One result that may be too large."""

    def __init__(
        self,
        reading: Reading,
        limits: ResultLimits,
        measure: Measure,
        result_id: str,
        *,
        compact_json: bool,
    ) -> None:
        self.reading = reading
        self.limits = limits
        self.measure = measure
        self.result_id = result_id
        self.compact_json = compact_json
        self._minify = Minifier()
        self._shown_value: Any = NO_JSON
        """The JSON value of the only shown text, if known without parsing."""
        self._exceeded = 0
        """A number of tokens that the only text certainly exceeds."""

    @property
    def budget(self) -> int:
        return max(self.limits.tokens - NOTICE_ROOM, 0)

    def within(self, limits: ResultLimits) -> Cutting:
        """Set other limits and return this object."""
        self.limits = limits
        return self

    def whole(self) -> Reading:
        """The complete result as it is shown."""
        return without_blanks(self.reading) if self.compact_json else self.reading

    @lazy
    def documents(self) -> list[tuple[int, ResultDocument]]:
        slots = self.reading.slots
        value = self.reading.value if len(slots) == 1 and size_of(slots[0].text) <= PARSED else NO_JSON
        documents = [(slot.block, read_document(slot.text, value)) for slot in slots]
        unsaid = self.reading.unsaid
        if unsaid is NO_JSON or self._beside or (len(documents) == 1 and self._is_the_same(documents[0][1], unsaid)):
            return documents
        return [*documents, (STRUCTURED, _structured_document(unsaid))]

    @lazy
    def _beside(self) -> str:
        """Content of a small structure that the texts lack: shown completely after a long text, however much is cut."""
        unsaid, most = self.reading.unsaid, self.limits.of_a_preview.tokens // _BESIDE
        if not self.reading.slots or not isinstance(unsaid, dict) or not most:
            return ""
        written = compact(unsaid)
        return written if len(written) <= most * _LIKELY_PER_TOKEN and self.measure(written.encode()) <= most else ""

    @property
    def _judged(self) -> list[tuple[int, ResultDocument]]:
        """The documents searched for a table and for the tool's own limit: the texts, if there are any."""
        return self.documents[: len(self.reading.slots)] or self.documents

    def is_surely_over(self) -> bool:
        """Whether one long text certainly exceeds the limit, so it need not be counted completely or minified."""
        most = self.limits.tokens
        if not most or self.reading.size <= most * _LIKELY_PER_TOKEN or len(self.documents) != 1:
            return False
        return self._is_exceeded(self.documents[0][1], most)

    def limited(self, judge: Judge, extent: Extent | None = None) -> LimitedResult:
        """The result within its limits. `extent` is given for a parsed result already known to exceed them."""
        documents = self.documents
        if extent is None:
            extent = judge(around_documents(self._judged))
            self.limits = self.limits.with_room_for(extent)
            if not self._is_over(self._judged):
                return LimitedResult(with_line(self.whole().result, extent), _data_of(self._judged), extent=extent)
        if self._beside:
            room = self.measure(self._beside.encode()) + GAP
            self.limits = replace(self.limits, reserved=self.limits.reserved + room)
        shown, cut_at, position = self._cut_texts(documents)
        pieces = replace(divide(documents, self.limits.piece_tokens, self.measure), remark=extent.remark())
        next_offset = pieces.after(cut_at, position)
        notice = cut_notice(pieces, next_offset, self.result_id)
        data = self._kept_data(shown)
        # Free the value in the thread that made it: on the event loop's core, freeing it takes four times as long.
        self.reading.forget_value()
        return LimitedResult(self._result(shown, extent, notice), data, pieces, next_offset, extent=extent)

    def _is_over(self, documents: Sequence[tuple[int, ResultDocument]]) -> bool:
        rows = documents[0][1].row_count if len(documents) == 1 else None
        if self.limits.max_rows and rows is not None and rows > self.limits.max_rows:
            return True
        return not are_within(self.reading, self.limits, self.measure)

    def _cut_texts(self, documents: Sequence[tuple[int, ResultDocument]]) -> tuple[list[bytes], int, int]:
        """The texts as shown, the number of the last one shown, and the position in it up to which it is shown."""
        if len(documents) == 1:
            document = documents[0][1]
            shown = self._shown(document)
            if not self._has_too_many_rows(document) and self._fits(document):
                return [shown(document.data)], 0, len(document.data)
            cut = document.cut(self._room(shown), self.limits.max_rows)
            self._shown_value = document.value_of(cut)
            return [shown(cut.data)], 0, cut.shown_until
        texts: list[bytes] = []
        left = self.budget
        for number, (block, document) in enumerate(documents):
            shown = self._shown(document)
            if number and number == self._most_texts:
                return texts, number, 0
            # Several texts do not form a table; a structure may.
            max_rows = self.limits.max_rows if block == STRUCTURED else 0
            fits = not self.limits.max_tokens or self.measure.fits(document.data, left, shown)
            if fits and not (max_rows and self._has_too_many_rows(document)):
                texts.append(shown(document.data))
                left -= self.measure(texts[-1]) + GAP if self.limits.max_tokens else 0
                continue
            room = self.measure.room(left, shown) if self.limits.max_tokens else _anything
            cut = document.cut(room, max_rows)
            return [*texts, shown(cut.data)], number, cut.shown_until
        return texts, len(documents) - 1, len(documents[-1][1].data)

    @lazy
    def _most_texts(self) -> int:
        """How many texts are shown, if each is a row of the structured content; 0: as many as fit."""
        reading, rows = self.reading, self.limits.max_rows
        if not rows or reading.structured is NO_JSON or len(reading.slots) <= rows or reading.unsaid is not NO_JSON:
            return 0
        return rows if reading.data is not None and reading.data.row_count == len(reading.slots) else 0

    def _shown(self, document: ResultDocument) -> Shown:
        return self._minify if document.is_json and self.compact_json else bytes

    def _has_too_many_rows(self, document: ResultDocument) -> bool:
        return bool(self.limits.max_rows and document.row_count and document.row_count > self.limits.max_rows)

    def _fits(self, document: ResultDocument) -> bool:
        if not self.limits.max_tokens:
            return True
        return not self._is_exceeded(document, self.budget) and self._room(self._shown(document))(document.data)

    def _is_exceeded(self, document: ResultDocument, budget: int) -> bool:
        """Whether a document certainly exceeds a budget; a positive answer holds for smaller budgets too."""
        if budget > self._exceeded:
            room = self.measure.room(budget, self._shown(document))
            self._exceeded = budget if room.is_exceeded(document.layout.counted) else self._exceeded
        return budget <= self._exceeded

    def _room(self, shown: Shown = bytes) -> Fits:
        return self.measure.room(self.budget, shown) if self.limits.max_tokens else _anything

    def _is_the_same(self, document: ResultDocument, unsaid: Any) -> bool:
        """Whether a large structure repeats the only text, also large: assumed if both are divided alike."""
        if not isinstance(unsaid, LargeValue) or len(document.data) <= PARSED or not document.is_json:
            return False
        other = _structured_document(unsaid)
        at = first_filled(document.data, 0)
        return document.data[at : at + 1] == unsaid.opening and (
            (document.layout.unit, document.layout.count) == (other.layout.unit, other.layout.count)
        )

    def _result(self, shown: Sequence[bytes], extent: Extent, notice: str) -> dict[str, Any]:
        texts = [decoded(data) for data in shown]
        blocks: list[Any] = []
        slots = {slot.block: number for number, slot in enumerate(self.reading.slots)}
        for number, block in enumerate(self.reading.blocks):
            at = slots.get(number)
            if at is None:
                blocks.append(block)
            elif at < len(texts):
                blocks.append(with_text(block, texts[at]))
        structure = [self._beside] if self._beside else texts[len(slots) :]
        blocks += [{"type": "text", "text": text} for text in structure]
        rest = {key: value for key, value in self.reading.result.items() if key != "structuredContent"}
        result = with_line({**rest, "content": blocks}, extent)
        result["content"] = [*result["content"], notice_block(notice)]
        return result

    def _kept_data(self, shown: Sequence[bytes]) -> DataInfo:
        if self._shown_value is not NO_JSON:
            table = find_table(self._shown_value)
            return DataInfo() if table is None else DataInfo(table.row_count, table.column_count)
        # Several texts do not form a table, but a structure after them may.
        texts = shown[-1:] if len(shown) > len(self.reading.slots) else shown
        found = Reading({"content": [{"type": "text", "text": decoded(data)} for data in texts]}).data
        return found or DataInfo()


def _structured_document(value: Any) -> ResultDocument:
    text = LargeText.of(value) if isinstance(value, LargeValue) else compact(value)
    return read_document(text, value)


def _data_of(documents: Sequence[tuple[int, ResultDocument]]) -> DataInfo | None:
    if len(documents) != 1 or documents[0][1].row_count is None:
        return None
    return DataInfo(documents[0][1].row_count, documents[0][1].column_count)


def around_documents(documents: Sequence[tuple[int, ResultDocument]]) -> ShownRows:
    """The rows that the only text of a result shows; of several texts, nothing is known."""
    if len(documents) != 1:
        return ShownRows()
    document = documents[0][1]
    return ShownRows(document.row_count, document.objects, is_shown=document.is_json)


_MOST_PER_TOKEN = 12
"""Maximum bytes per token, except in texts made to exceed it."""


def limited(
    reading: Reading,
    limits: ResultLimits,
    count: Count,
    result_id: str,
    judge: Judge = no_limit,
    *,
    compact_json: bool = True,
) -> LimitedResult:
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
        # There is nothing to cut, and several texts do not form a table.
        return LimitedResult(dict(cutting.whole().result), None)
    else:
        is_within = not limits.max_tokens or reading.size <= limits.max_tokens * _MOST_PER_TOKEN
    return cutting.within(limits if is_within else limits.of_a_preview).limited(judge, extent)


def _whole(shown: Reading, extent: Extent, data: DataInfo | None) -> LimitedResult:
    return LimitedResult(with_line(shown.result, extent), data, shown=None if extent.line else shown, extent=extent)


def is_parsed(reading: Reading) -> bool:
    """Whether a result is so small that its JSON is parsed."""
    return reading.size <= PARSED and not reading.has_large_structure


def around_of(reading: Reading) -> ShownRows:
    """The rows that a result shows. The result must be small enough to be parsed."""
    if reading.result.get("isError"):
        return ShownRows()
    values = [value for value in (reading.structured, reading.value) if isinstance(value, dict | list)]
    objects = tuple(each for value in values for each in objects_in(value))
    is_shown = not reading.slots or reading.value is not NO_JSON
    if (data := reading.data) is not None and data.row_count is not None:
        return ShownRows(data.row_count, objects, is_shown=is_shown)
    listed = next((count for value in values if (count := only_list(value)) is not None), None)
    # A server may send each element as a separate text.
    several = len(reading.slots) if len(reading.slots) > 1 and not values else None
    return ShownRows(several if listed is None else listed, objects, "item", is_shown)


def whole_pieces(reading: Reading, limits: ResultLimits, count: Count, judge: Judge = no_limit) -> Pieces:
    """Divide a complete result into pieces, with a remark that says what `judge` found."""
    documents = [(slot.block, read_document(slot.text)) for slot in reading.slots]
    if not documents:
        documents = [(STRUCTURED, read_document(reading.structured_text, reading.structured))]
    pieces = divide(documents, limits.piece_tokens, Measure(count))
    small = around_of(reading) if is_parsed(reading) else around_documents(documents)
    return replace(pieces, remark=judge(small).remark())
