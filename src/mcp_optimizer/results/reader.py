"""Reads more of results that were cut: pages, matching pieces, or what an expression selects.

Every reply is an ordinary result within the token limit of the result it comes from. Called by the pipeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from mcp_optimizer.domain.kept_results import KeptResult
from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.results.fitting import Measure
from mcp_optimizer.results.item_layout import most
from mcp_optimizer.results.limits import NOTICE_ROOM, PAGE_TOKENS
from mcp_optimizer.results.notices import Notice, Selection, notice_block
from mcp_optimizer.results.pages import joined, page, without_blanks
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.result_store import ResultStore
from mcp_optimizer.results.result_texts import NO_JSON, PARSED, Text, data_value, decoded, json_value, size_of
from mcp_optimizer.results.selecting import MOST_SELECTED, NEEDS_JSON, Selecting
from mcp_optimizer.results.tool_limits import CUT, Extent

PAGE_META_KEY = "mcp-optimizer/page"
"""The `_meta` key that says which pieces a page contains, for programs that concatenate pages."""

_BYTES_PER_TOKEN = 12
"""Bounds how many pieces are read for a page: those that would fit at this rate."""

_OF_JSON = frozenset(("rows", "items", "keys"))
"""Units whose pieces may be JSON."""

_LONGEST_SEARCH = 200


class ResultReader:
    """Reads the kept results of one store."""

    def __init__(self, store: ResultStore, count: Callable[[str], int], selecting: Selecting) -> None:
        self._store = store
        self._measure = Measure(count)
        self._selecting = selecting

    async def read_on(
        self, result: KeptResult, offset: int, limit: int | None, search: str, *, is_compact: bool = False
    ) -> tuple[dict[str, Any], Extent]:
        """A page, or the pieces that contain a text; and whether there are more rows than that."""
        if search:
            return await self.search(result, search, offset, limit), await self.extent(result)
        found = await self.page(result, offset, limit, is_compact=is_compact)
        is_last = "nextOffset" not in found.get("_meta", {}).get(PAGE_META_KEY, {})
        return found, await self.extent(result) if is_last else CUT

    async def extent(self, result: KeptResult) -> Extent:
        """Whether the tool itself cut a result."""
        return Extent.of(await self._store.remark(result))

    async def page(
        self, result: KeptResult, offset: int, limit: int | None, *, is_compact: bool = False
    ) -> dict[str, Any]:
        """The pieces from `offset` on that fit, at most `limit`. All pages together are the original; compact ones, for
        a model, are so without the whitespace inside JSON.
        """
        _check(offset, limit)
        budget = _budget(result)
        most_bytes = budget * _BYTES_PER_TOKEN
        pieces: list[tuple[int, bytes]] = []
        at, size = offset, 0
        while size <= most_bytes and (limit is None or len(pieces) < limit):
            at, some = await self._store.pieces(result, at)
            if not some:
                break
            if is_compact and result.unit in _OF_JSON:
                some = await asyncio.to_thread(_without_blanks, some)
            pieces += some
            size += sum(len(piece) for _, piece in some)
        if not pieces:
            said = f"[No {result.unit} from offset {offset:,} on: the result has {result.pieces:,}.]"
            return told(notice_block(said))
        found = await asyncio.to_thread(page, pieces[:limit], offset, lambda texts: self._all_fit(texts, budget))
        end = offset + found.count
        next_offset = end if end < result.pieces else None
        more = f"Next: offset={end}." if next_offset is not None else "That is the end."
        span = f"{result.unit.capitalize()} {offset:,} to {end - 1:,} of {result.pieces:,}. {more}"
        notice = "[All of it.]" if found.count == result.pieces else f"[{span}]"
        about = {"resultId": result.id, "unit": result.unit, "offset": offset, "count": found.count}
        about |= {"total": result.pieces} | ({"nextOffset": end} if next_offset is not None else {})
        texts = [decoded(text) for _, text in found.texts]
        return {**told(*texts, notice_block(notice)), "_meta": {PAGE_META_KEY: about}}

    def _all_fit(self, texts: Any, budget: int) -> bool:
        size = sum(map(len, texts))
        return size <= budget or (size <= budget * _BYTES_PER_TOKEN and sum(map(self._measure, texts)) <= budget)

    async def search(self, result: KeptResult, words: str, offset: int, limit: int | None) -> dict[str, Any]:
        """The pieces from `offset` on that contain `words`, each with its number; as many as fit."""
        _check(offset, limit)
        if len(words) > _LONGEST_SEARCH:
            raise InvalidRequest(f"search must be at most {_LONGEST_SEARCH} characters.")
        wanted = words.casefold()
        budget = _budget(result)
        found: list[tuple[int, str]] = []
        size, at, rest = 0, offset, None
        while rest is None and at < result.pieces:
            begin = at
            at, some = await self._store.pieces(result, at)
            if not some:
                break
            for number, line in await asyncio.to_thread(_matching, some, begin, wanted):
                if len(found) == limit or size > budget * _BYTES_PER_TOKEN:
                    rest = number
                    break
                found.append((number, line))
                size += len(line)
        lines = [f"{number}: {line}" for number, line in found]
        count = await asyncio.to_thread(self._most_lines, lines, budget)
        if count < len(found):
            rest = found[count][0]
        if not found:
            return told(notice_block(f"[No {result.unit} from offset {offset:,} on contain {words!r}.]"))
        more = f"More from offset={rest} on." if rest is not None else "No more."
        said = f"[{count:,} {result.unit} with {words!r}. {more}]"
        return told("\n".join(lines[:count]), notice_block(said))

    def _most_lines(self, lines: list[str], budget: int) -> int:
        def fits(n: int) -> bool:
            return n == 0 or self._measure.text_fits(["\n".join(lines[:n])], budget)

        return max(most(len(lines), fits) or 0, 1 if lines else 0)

    async def select(self, result: KeptResult, projection: Projection) -> Selection:
        """What an expression selects from the complete result; several texts form a list."""
        if result.bytes > MOST_SELECTED:
            raise InvalidRequest(
                f"The result is too large for select ({result.bytes:,} bytes; at most {MOST_SELECTED:,}). Use search, "
                "or read it with offset."
            )
        value = None
        if result.bytes <= PARSED:
            pieces = [piece async for some in self._pieces(result) for piece in some]
            value = partial(_values, pieces)
        return await self._selecting.select(projection, result.bytes, lambda: self._texts(result), value)

    async def value(self, result: KeptResult, projection: Projection | None, most: int) -> Any:
        """A complete result as a value, or what an expression selects from it, for a call: JSON, or else its text.
        Raises InvalidRequest if it is larger than `most`, or nothing is selected.
        """
        if projection is not None:
            selection = await self.select(result, projection)
            if selection.unmatched is not None:
                why = selection.unmatched.why or "there is no such part"
                keys = f" Keys: {selection.unmatched.keys[0]}." if selection.unmatched.keys else ""
                raise InvalidRequest(f"select finds nothing in the result {quoted(result.id)}: {why}.{keys}")
            if size_of(selection.text) > most:
                raise _too_large(result, most)
            return await asyncio.to_thread(lambda: parsed(str(_plain(selection.text))))
        if result.bytes > most:
            raise _too_large(result, most)
        pieces = [piece async for some in self._pieces(result) for piece in some]
        return await asyncio.to_thread(_as_value, pieces)

    async def _pieces(self, result: KeptResult) -> AsyncIterator[list[tuple[int, bytes]]]:
        at = 0
        while at < result.pieces:
            at, some = await self._store.pieces(result, at)
            if not some:
                return
            yield some

    async def _texts(self, result: KeptResult) -> AsyncIterator[bytes]:
        """The texts of a result in chunks, separated by commas."""
        last = None
        async for some in self._pieces(result):
            for block, text in await asyncio.to_thread(joined, some):
                if last not in (None, block):
                    yield b","
                last = block
                yield text


def _without_blanks(pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(block, without_blanks(piece)) for block, piece in pieces]


def _values(pieces: list[tuple[int, bytes]]) -> Any:
    value = _value_of([decoded(text) for _, text in joined(pieces)], _data)
    if value is NO_JSON:
        raise InvalidRequest(NEEDS_JSON)
    return value


def _as_value(pieces: list[tuple[int, bytes]]) -> Any:
    """The JSON of a result, or its texts if they are none."""
    texts = [decoded(text) for _, text in joined(pieces)]
    value = _value_of(texts, json_value)
    return "\n".join(texts) if value is NO_JSON else value


def _value_of(texts: Sequence[str], read: Callable[[str], Any]) -> Any:
    """The value of a text, or the list of those of several; NO_JSON if one of them has none."""
    values = [read(text) for text in texts]
    if any(value is NO_JSON for value in values):
        return NO_JSON
    return values[0] if len(values) == 1 else values


def _plain(text: Text) -> str:
    return text if isinstance(text, str) else text.parsed()


def _too_large(result: KeptResult, most: int) -> InvalidRequest:
    return InvalidRequest(
        f"The result {quoted(result.id)} is too large for an argument (at most {most:,} characters). Select less of it."
    )


def _data(text: str) -> Any:
    value = json_value(text)
    return data_value(text) if value is NO_JSON else value


def _matching(pieces: list[tuple[int, bytes]], first: int, wanted: str) -> list[tuple[int, str]]:
    texts = ((first + number, decoded(piece)) for number, (_, piece) in enumerate(pieces))
    return [(number, text.strip()) for number, text in texts if wanted in text.casefold()]


def _budget(result: KeptResult) -> int:
    return (result.max_tokens or PAGE_TOKENS) - NOTICE_ROOM


def _check(offset: int, limit: int | None) -> None:
    if offset < 0:
        raise InvalidRequest(f"offset must not be negative, but is {offset}.")
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit must be at least 1, not {limit}.")


def told(*texts: Text | Notice) -> dict[str, Any]:
    """A result with only these texts."""
    blocks = [text if isinstance(text, Notice) else {"type": "text", "text": text} for text in texts]
    return {"content": blocks, "isError": False}
