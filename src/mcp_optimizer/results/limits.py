"""Cuts a result to its limits without losing anything: the pieces contain the rest.

A client may give its model either the texts or the structured content, so both must fit `max_tokens`, notice included,
in the encoding used for counting. Pure; the caller keeps the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mcp_optimizer.largejson.raw import LargeText, LargeValue
from mcp_optimizer.largejson.spans import first_filled
from mcp_optimizer.results.document import ResultDocument, decoded, read_document
from mcp_optimizer.results.encodings import minified
from mcp_optimizer.results.measure import GAP, Count, Measure, Shown
from mcp_optimizer.results.metadata import DataInfo
from mcp_optimizer.results.notices import cut_notice, notice_block
from mcp_optimizer.results.pages import Pieces, divide
from mcp_optimizer.results.reading import NO_JSON, PARSED, Reading, Slot, Text, compact, json_value
from mcp_optimizer.runtime.lazy import lazy

NOTICE_ROOM = 80
"""Tokens reserved for the notice."""

PIECE_ROOM = 100
"""Tokens that a page needs besides a piece: the notice, and the piece's number in a search."""

STRUCTURED = -1
"""The block number of the structured content."""

_MOST_PER_TOKEN = 12
"""Bytes that a token has at most, in texts that are not made to have more."""

PAGE_TOKENS = 20_000
"""Tokens of a page of a result that has no token limit."""

_JSON_STARTS = frozenset("{[ \n")
_BLANKS_IN_JSON = ("\n", '": ', '", ', "}, ")


@dataclass(frozen=True)
class ResultLimits:
    """The maximum that a result may contain; 0 means no limit."""

    max_rows: int = 0
    max_tokens: int = 0
    reserved: int = 0
    """Tokens for what follows the result."""
    preview_tokens: int = 0
    """The maximum of a result that exceeds `max_tokens`, if it is to be less."""

    @property
    def of_a_preview(self) -> ResultLimits:
        """The limits of a result that is too long."""
        shown = min(self.preview_tokens or self.max_tokens, self.max_tokens)
        return replace(self, max_tokens=shown, preview_tokens=0)

    @property
    def tokens(self) -> int:
        """The maximum tokens of the result itself."""
        return max(self.max_tokens - self.reserved, 1) if self.max_tokens else 0


@dataclass(frozen=True)
class Limited:
    """A result within its limits. If it was cut: all its pieces, and the first piece that is not completely shown."""

    result: dict[str, Any]
    data: DataInfo | None
    pieces: Pieces | None = None
    next_offset: int = 0


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
    measure = Measure(count)
    shown = without_blanks(reading) if compact_json else reading
    if reading.size <= PARSED and not reading.has_large_structure:
        data = reading.data()
        too_many = bool(limits.max_rows and data and (data.row_count or 0) > limits.max_rows)
        is_within = _within(shown, limits, measure)
        if not too_many and is_within:
            return Limited(dict(shown.result), data)
    elif limits == ResultLimits() and len(reading.slots) > 1:
        # Nothing to cut, and several texts are not a table.
        return Limited(dict(shown.result), None)
    else:
        is_within = not limits.max_tokens or reading.size <= limits.max_tokens * _MOST_PER_TOKEN
    limits = limits if is_within else limits.of_a_preview
    is_valid = is_valid or (lambda _value: True)
    return _Cutting(reading, limits, measure, result_id, is_valid, compact_json=compact_json).limited()


def without_blanks(reading: Reading) -> Reading:
    """The same result with its JSON texts minified; very large ones stay unchanged."""
    texts = {slot.block: text for slot in reading.slots if (text := _minified(reading, slot)) is not None}
    if not texts:
        return reading
    blocks = [_with_text(block, texts[at]) if at in texts else block for at, block in enumerate(reading.blocks)]
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


def whole_pieces(reading: Reading, limits: ResultLimits, count: Count) -> Pieces:
    """A complete result in pieces."""
    documents = [(slot.block, read_document(slot.text)) for slot in reading.slots]
    if not documents:
        documents = [(STRUCTURED, read_document(reading.structured_text, reading.structured))]
    return divide(documents, _piece_budget(limits), Measure(count))


def _piece_budget(limits: ResultLimits) -> int:
    return (limits.max_tokens or PAGE_TOKENS) - PIECE_ROOM


def _within(reading: Reading, limits: ResultLimits, measure: Measure) -> bool:
    if not limits.max_tokens:
        return True
    texts = [slot.text for slot in reading.slots]
    # The structured content last and only if needed, because it must first be written as JSON.
    return measure.text_fits(texts, limits.tokens) and measure.text_fits([reading.structured_text], limits.max_tokens)


class _Cutting:
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
        self.budget = max(limits.tokens - NOTICE_ROOM, 0)

    def limited(self) -> Limited:
        documents = [(slot.block, read_document(slot.text)) for slot in self.reading.slots]
        structured = self.reading.structured
        is_alone = structured is not NO_JSON and not documents
        if is_alone:
            documents = [(STRUCTURED, self._structured_document)]
        if not self._is_over(documents):
            whole = without_blanks(self.reading) if self.compact_json else self.reading
            return Limited(dict(whole.result), _data_of(documents))
        shown, cut_at, position = self._cut_texts([document for _, document in documents])
        structure, separate = self._cut_structured(documents, shown)
        if separate is not None:
            documents = [*documents, (STRUCTURED, separate)]
        pieces = divide(documents, _piece_budget(self.limits), self.measure)
        next_offset = pieces.after(cut_at, position)
        notice = cut_notice(pieces, next_offset, self.result_id)
        return Limited(self._result(shown, structure, notice), self._kept_data(shown, structure), pieces, next_offset)

    def _is_over(self, documents: Sequence[tuple[int, ResultDocument]]) -> bool:
        rows = documents[0][1].row_count if len(documents) == 1 else None
        if self.limits.max_rows and rows is not None and rows > self.limits.max_rows:
            return True
        return not _within(self.reading, self.limits, self.measure)

    def _cut_texts(self, documents: Sequence[ResultDocument]) -> tuple[list[bytes], int, int]:
        """The texts as shown, and the position of the first that is not completely shown."""
        if len(documents) == 1:
            document = documents[0]
            shown = self._shown(document)
            if self._fits(document.data, shown) and not self._has_too_many_rows(document):
                return [shown(document.data)], 0, len(document.data)
            cut = document.cut(lambda data: self._fits(data, shown), self.limits.max_rows)
            return [shown(cut.data)], 0, cut.shown_until
        texts: list[bytes] = []
        left = self.budget
        for number, document in enumerate(documents):
            shown = self._shown(document)
            if self.measure.fits(document.data, left, shown):
                texts.append(shown(document.data))
                left -= self.measure(texts[-1]) + GAP
                continue
            cut = document.cut(partial(self.measure.fits, budget=left, shown=shown))
            return [*texts, shown(cut.data)], number, cut.shown_until
        return texts, len(documents) - 1, len(documents[-1].data)

    def _shown(self, document: ResultDocument) -> Shown:
        return minified if document.is_json and self.compact_json else bytes

    def _has_too_many_rows(self, document: ResultDocument) -> bool:
        return bool(self.limits.max_rows and document.row_count and document.row_count > self.limits.max_rows)

    def _fits(self, data: bytes, shown: Shown = bytes) -> bool:
        return not self.limits.max_tokens or self.measure.fits(data, self.budget, shown)

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
        if self._fits(document.data) and not self._has_too_many_rows(document):
            return structured, None
        cut = document.cut(self._fits, self.limits.max_rows)
        return json_value(decoded(cut.data)), document

    def _preview(self, kept: Any) -> dict[str, Any]:
        about = "A part of the result, not in the declared shape. Read all of it with read_result."
        preview = {} if kept is NO_JSON else {"preview": kept}
        return {"truncated": True, "result_id": self.result_id, "description": about, **preview}

    def _result(self, shown: Sequence[bytes], structure: Any, notice: str) -> dict[str, Any]:
        texts = [decoded(data) for data in shown]
        blocks: list[Any] = []
        slots = {slot.block: number for number, slot in enumerate(self.reading.slots)}
        for number, block in enumerate(self.reading.blocks):
            at = slots.get(number)
            if at is None:
                blocks.append(block)
            elif at < len(texts):
                blocks.append(_with_text(block, texts[at]))
        if not self.reading.slots:
            blocks += [{"type": "text", "text": text} for text in texts]
        result = {**self.reading.result, "content": [*blocks, notice_block(notice)]}
        return result if structure is NO_JSON else {**result, "structuredContent": structure}

    def _kept_data(self, shown: Sequence[bytes], structure: Any) -> DataInfo:
        blocks = [{"type": "text", "text": decoded(data)} for data in shown]
        found = Reading({"content": blocks, "structuredContent": None if structure is NO_JSON else structure}).data()
        return found or DataInfo()


def _is_same_text(value: Any, text: Text) -> bool:
    if isinstance(value, LargeText) and isinstance(text, str):
        return value.size <= PARSED and value.parsed() == text
    # A large text that occurs twice in a message was read once.
    return value is text or (isinstance(value, str) and value == text)


def _with_text(block: Any, text: str) -> Any:
    if isinstance(block, Mapping) and isinstance(block.get("text"), Text):
        return {**block, "text": text}
    if isinstance(block, Mapping) and isinstance(block.get("resource"), Mapping):
        return {**block, "resource": {**block["resource"], "text": text}}
    # A link: unchanged, or, if it was cut, as its remaining text.
    return block if text == compact(block) else {"type": "text", "text": text}


def _data_of(documents: Sequence[tuple[int, ResultDocument]]) -> DataInfo | None:
    if len(documents) != 1 or documents[0][1].row_count is None:
        return None
    return DataInfo(documents[0][1].row_count, documents[0][1].column_count)
