"""One result that may be too large: its texts, and then what only its structured content says. Used by `limits`. Pure.

What was cut is text alone, with the notice at its end: a client that gives its model structured content in place of the
text would not show the notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.largejson.spans import first_filled
from mcp_optimizer.results.blanks import with_text, without_blanks
from mcp_optimizer.results.cut import Fits
from mcp_optimizer.results.document import ResultDocument, read_document
from mcp_optimizer.results.limit_values import NOTICE_ROOM, STRUCTURED, Limited, ResultLimits
from mcp_optimizer.results.measure import GAP, Measure
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.minifying import Minifier
from mcp_optimizer.results.notices import cut_notice, notice_block, with_line
from mcp_optimizer.results.pages import divide
from mcp_optimizer.results.reading import NO_JSON, PARSED, Reading, compact, decoded, size_of
from mcp_optimizer.results.room import Shown
from mcp_optimizer.results.rows import find_table
from mcp_optimizer.results.tool_limits import Extent, Judge, ShownRows
from mcp_optimizer.runtime.lazy import lazy

_LIKELY_PER_TOKEN = 2
"""Characters per token up to which a text likely fits."""

_BESIDE = 4
"""Of the room for a result, the part that a small structure beside a long text may take to be shown completely."""


def _anything(_text: bytes) -> bool:
    """The room of a result that may be as long as it is."""
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
        """The only text as it is shown, as JSON, if that is known without parsing it."""
        self._exceeded = 0
        """Tokens that the only text surely exceeds."""

    @property
    def budget(self) -> int:
        return max(self.limits.tokens - NOTICE_ROOM, 0)

    def within(self, limits: ResultLimits) -> Cutting:
        """The same with other limits."""
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
        """What only a small structure says: shown after a long text, however much of that is cut."""
        unsaid, most = self.reading.unsaid, self.limits.of_a_preview.tokens // _BESIDE
        if not self.reading.slots or not isinstance(unsaid, dict) or not most:
            return ""
        written = compact(unsaid)
        return written if len(written) <= most * _LIKELY_PER_TOKEN and self.measure(written.encode()) <= most else ""

    @property
    def _judged(self) -> list[tuple[int, ResultDocument]]:
        """What is looked at for a table, and for the tool's own limit: the texts, if there are any."""
        return self.documents[: len(self.reading.slots)] or self.documents

    def is_surely_over(self) -> bool:
        """Whether one long text has so many tokens that it need not be counted completely, nor written again."""
        most = self.limits.tokens
        if not most or self.reading.size <= most * _LIKELY_PER_TOKEN or len(self.documents) != 1:
            return False
        return self._is_exceeded(self.documents[0][1], most)

    def limited(self, judge: Judge, extent: Extent | None = None) -> Limited:
        """The result within its limits. `extent` is known of a result that surely exceeds them."""
        documents = self.documents
        if extent is None:
            extent = judge(around_documents(self._judged))
            self.limits = self.limits.with_room_for(extent)
            if not self._is_over(self._judged):
                return Limited(with_line(self.whole().result, extent), _data_of(self._judged), extent=extent)
        if self._beside:
            room = self.measure(self._beside.encode()) + GAP
            self.limits = replace(self.limits, reserved=self.limits.reserved + room)
        shown, cut_at, position = self._cut_texts(documents)
        pieces = replace(divide(documents, self.limits.piece_tokens, self.measure), remark=extent.remark())
        next_offset = pieces.after(cut_at, position)
        notice = cut_notice(pieces, next_offset, self.result_id)
        data = self._kept_data(shown)
        # Here, where it was made: the event loop would take four times as long to free what another core has in reach.
        self.reading.forget_value()
        return Limited(self._result(shown, extent, notice), data, pieces, next_offset, extent=extent)

    def _is_over(self, documents: Sequence[tuple[int, ResultDocument]]) -> bool:
        rows = documents[0][1].row_count if len(documents) == 1 else None
        if self.limits.max_rows and rows is not None and rows > self.limits.max_rows:
            return True
        return not are_within(self.reading, self.limits, self.measure)

    def _cut_texts(self, documents: Sequence[tuple[int, ResultDocument]]) -> tuple[list[bytes], int, int]:
        """The texts as shown, and the position of the first that is not completely shown."""
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
            # Several texts are no table; a structure may be one.
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
        """Whether a document surely has more tokens; what was found once is true of smaller budgets too."""
        if budget > self._exceeded:
            room = self.measure.room(budget, self._shown(document))
            self._exceeded = budget if room.is_exceeded(document.layout.counted) else self._exceeded
        return budget <= self._exceeded

    def _room(self, shown: Shown = bytes) -> Fits:
        return self.measure.room(self.budget, shown) if self.limits.max_tokens else _anything

    def _is_the_same(self, document: ResultDocument, unsaid: Any) -> bool:
        """Whether a large structure is divided like the only text, which is large too: then it is the same."""
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
        # Several texts are no table, but a structure after them may be one.
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
    """What the texts of a result show of a list; of several texts, nothing is known."""
    if len(documents) != 1:
        return ShownRows()
    document = documents[0][1]
    return ShownRows(document.row_count, document.objects, is_shown=document.is_json)
