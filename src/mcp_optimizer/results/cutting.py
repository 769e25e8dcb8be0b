"""One result that may be too large: its texts and its structured content, cut alike. Used by `limits`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.largejson.spans import first_filled
from mcp_optimizer.results.blanks import with_text, without_blanks
from mcp_optimizer.results.cut import Fits
from mcp_optimizer.results.document import ResultDocument, decoded, read_document
from mcp_optimizer.results.limit_values import NOTICE_ROOM, STRUCTURED, Limited, ResultLimits
from mcp_optimizer.results.measure import GAP, Measure
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.minifying import Minifier
from mcp_optimizer.results.notices import cut_notice, notice_block, with_line
from mcp_optimizer.results.pages import divide
from mcp_optimizer.results.reading import NO_JSON, PARSED, Reading, Text, compact, json_value, size_of
from mcp_optimizer.results.room import Shown
from mcp_optimizer.results.rows import find_table
from mcp_optimizer.results.tool_limits import Extent, Judge, ShownRows
from mcp_optimizer.runtime.lazy import lazy

_LIKELY_PER_TOKEN = 2
"""Characters per token up to which a text likely fits."""


def anything(_value: Any) -> bool:
    """The check of structured content whose tool declares no schema."""
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
        is_valid: Callable[[Any], bool],
        *,
        compact_json: bool,
    ) -> None:
        self.reading = reading
        self.limits = limits
        self.measure = measure
        self.result_id = result_id
        self.is_valid = is_valid
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
        is_alone = self.reading.structured is not NO_JSON and not documents
        return [(STRUCTURED, self._structured_document)] if is_alone else documents

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
            extent = judge(around_documents(documents))
            self.limits = self.limits.with_room_for(extent)
            if not self._is_over(documents):
                return Limited(with_line(self.whole().result, extent), _data_of(documents), extent=extent)
        shown, cut_at, position = self._cut_texts([document for _, document in documents])
        structure, separate = self._cut_structured(documents, shown)
        if separate is not None:
            documents = [*documents, (STRUCTURED, separate)]
        pieces = replace(divide(documents, self.limits.piece_tokens, self.measure), remark=extent.remark())
        next_offset = pieces.after(cut_at, position)
        notice = cut_notice(pieces, next_offset, self.result_id)
        data = self._kept_data(shown, structure)
        # Here, where it was made: the event loop would take four times as long to free what another core has in reach.
        self.reading.forget_value()
        result = self._result(shown, structure, extent, notice)
        return Limited(result, data, pieces, next_offset, extent=extent)

    def _is_over(self, documents: Sequence[tuple[int, ResultDocument]]) -> bool:
        rows = documents[0][1].row_count if len(documents) == 1 else None
        if self.limits.max_rows and rows is not None and rows > self.limits.max_rows:
            return True
        return not are_within(self.reading, self.limits, self.measure)

    def _cut_texts(self, documents: Sequence[ResultDocument]) -> tuple[list[bytes], int, int]:
        """The texts as shown, and the position of the first that is not completely shown."""
        if len(documents) == 1:
            document = documents[0]
            shown = self._shown(document)
            if not self._has_too_many_rows(document) and self._fits(document):
                return [shown(document.data)], 0, len(document.data)
            cut = document.cut(self._room(shown), self.limits.max_rows)
            self._shown_value = document.value_of(cut)
            return [shown(cut.data)], 0, cut.shown_until
        texts: list[bytes] = []
        left = self.budget
        for number, document in enumerate(documents):
            shown = self._shown(document)
            if self.measure.fits(document.data, left, shown):
                texts.append(shown(document.data))
                left -= self.measure(texts[-1]) + GAP
                continue
            cut = document.cut(self.measure.room(left, shown))
            return [*texts, shown(cut.data)], number, cut.shown_until
        return texts, len(documents) - 1, len(documents[-1].data)

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
        return self.measure.room(self.budget, shown) if self.limits.max_tokens else anything

    def _cut_structured(
        self, documents: Sequence[tuple[int, ResultDocument]], shown: Sequence[bytes]
    ) -> tuple[Any, ResultDocument | None]:
        """The structured content, cut like the text; and the part of it to keep in addition to the text."""
        structured = self.reading.structured
        if structured is NO_JSON:
            return NO_JSON, None
        separate = None
        if len(shown) == 1 and self._is_the_same(documents[0][1], structured):
            kept = json_value(decoded(shown[0]))
        elif len(shown) == 1 and (key := self._key_of_text(structured)) is not None:
            kept = {**structured, key: decoded(shown[0])}
        else:
            kept, separate = self._cut_apart(structured)
        if kept is NO_JSON or not self.is_valid(kept):
            kept = self._preview(kept)
        if self.limits.max_tokens and not self.measure.text_fits([compact(kept)], self.limits.max_tokens):
            kept = self._preview(NO_JSON)
        return kept, separate

    def _is_the_same(self, document: ResultDocument, structured: Any) -> bool:
        """Whether the text is the structured content as JSON; if both are large, whether they are divided alike."""
        if not document.is_json:
            return False
        if not self.reading.slots:
            return True
        if not isinstance(structured, LargeValue):
            return bool(self.reading.value == structured)
        if len(document.data) <= PARSED:
            return False
        other = self._structured_document
        at = first_filled(document.data, 0)
        return document.data[at : at + 1] == structured.opening and (
            (document.layout.unit, document.layout.count) == (other.layout.unit, other.layout.count)
        )

    @lazy
    def _structured_document(self) -> ResultDocument:
        return read_document(self.reading.structured_text, self.reading.structured)

    def _key_of_text(self, structured: Any) -> str | None:
        """The field of the structured content that holds the text itself, as file servers do."""
        if not isinstance(structured, Mapping) or len(self.reading.slots) != 1:
            return None
        text = self.reading.slots[0].text
        return next((key for key, value in structured.items() if _is_same_text(value, text)), None)

    def _cut_apart(self, structured: Any) -> tuple[Any, ResultDocument | None]:
        document = self._structured_document
        if not self._has_too_many_rows(document) and self._room()(document.data):
            return structured, None
        cut = document.cut(self._room(), self.limits.max_rows)
        return json_value(decoded(cut.data)), document

    def _preview(self, kept: Any) -> dict[str, Any]:
        about = "A part of the result, not in the declared shape. Read all of it with read_result."
        preview = {} if kept is NO_JSON else {"preview": kept}
        return {"truncated": True, "result_id": self.result_id, "description": about, **preview}

    def _result(self, shown: Sequence[bytes], structure: Any, extent: Extent, notice: str) -> dict[str, Any]:
        texts = [decoded(data) for data in shown]
        blocks: list[Any] = []
        slots = {slot.block: number for number, slot in enumerate(self.reading.slots)}
        for number, block in enumerate(self.reading.blocks):
            at = slots.get(number)
            if at is None:
                blocks.append(block)
            elif at < len(texts):
                blocks.append(with_text(block, texts[at]))
        if not self.reading.slots:
            blocks += [{"type": "text", "text": text} for text in texts]
        result = with_line({**self.reading.result, "content": blocks}, extent)
        result["content"] = [*result["content"], notice_block(notice)]
        return result if structure is NO_JSON else {**result, "structuredContent": structure}

    def _kept_data(self, shown: Sequence[bytes], structure: Any) -> DataInfo:
        if structure is NO_JSON and self._shown_value is not NO_JSON:
            table = find_table(self._shown_value)
            return DataInfo() if table is None else DataInfo(table.row_count, table.column_count)
        blocks = [{"type": "text", "text": decoded(data)} for data in shown]
        found = Reading({"content": blocks, "structuredContent": None if structure is NO_JSON else structure}).data
        return found or DataInfo()


def _is_same_text(value: Any, text: Text) -> bool:
    if isinstance(value, LargeText) and isinstance(text, str):
        return value.size <= PARSED and value.parsed() == text
    # A large text that occurs twice in a message was read once.
    return value is text or (isinstance(value, str) and value == text)


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
