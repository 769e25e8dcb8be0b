"""Handles every result between its server and the model. Called by the gateway for every call.

Measures time, uses a thread when a result is large, and waits for the database only when a result must be kept. The
pure modules of this package do the work on the result itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.extensions import is_interim
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.largejson.raw import has_large, wire_size
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.batch_results import OneOfMany, combined, note_on, values_of
from mcp_optimizer.results.cache import ResultCache
from mcp_optimizer.results.calls import OF_NO_TOOL, Call, ResultOptions, Treatment
from mcp_optimizer.results.encodings import Encoding, in_encoding
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.fitting import PartwiseCount
from mcp_optimizer.results.limits import (
    LimitedResult,
    ResultLimits,
    around_of,
    is_parsed,
    limited,
    only_line,
    whole_pieces,
)
from mcp_optimizer.results.metadata import (
    NOT_COUNTED,
    PerformanceInfo,
    Price,
    ResponseMetadata,
    TokenInfo,
    of_a_tool,
    with_meta,
    with_metadata,
)
from mcp_optimizer.results.notices import (
    NOT_WORTH_KEEPING,
    SELECTED_ROOM,
    SENT_WHOLE,
    Selection,
    and_told,
    not_selected,
    notice_block,
)
from mcp_optimizer.results.pages import Pieces
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.reader import ResultReader, told
from mcp_optimizer.results.result_store import ResultStore, new_result_id
from mcp_optimizer.results.result_texts import NO_JSON, Reading, data_value, example, marked_as_repeated
from mcp_optimizer.results.selecting import Selecting, selectable
from mcp_optimizer.results.tool_limits import Extent, with_extent
from mcp_optimizer.runtime.tasks import Afterwards
from mcp_optimizer.token_counter import TokenCounter

RESULT_META_KEY = "mcp-optimizer/result"
"""The `_meta` key for the complete result behind a cut one, and its cost."""

SELECTION_META_KEY = "mcp-optimizer/selection"
"""The `_meta` key for the cost of the complete result behind a selection, if that result was not kept."""

NOT_KEPT = "[Cut. The rest could not be kept; ask the tool for less at a time.]"

_SAMPLE = 400
"""Tokens shown of a result to which an expression could not be applied, if the result is larger."""

_INLINE = 32 * 1024
"""Maximum characters of text handled on the event loop; longer texts would delay other calls and go to a thread."""

_NO_LIMITS = ResultLimits()
_AS_IT_IS = Treatment(max_rows=0, max_tokens=0, encoding=Encoding.ORIGINAL)

Ask = Callable[[], Awaitable[dict[str, Any]]]
Choose = Callable[[Projection, Reading], Awaitable[Selection]]
_DATA_READ = 20_000
"""Maximum characters of a text that is no JSON and is read as an example all the same."""

Learn = Callable[[Call, Callable[[], Any]], None]


def _example(reading: Reading) -> Any:
    """An example of the data that a tool returns, also of a text from which `select` can select; NO_JSON if none."""
    found = example(reading)
    text = reading.slots[0].text if found is NO_JSON and len(reading.slots) == 1 else ""
    return data_value(text) if isinstance(text, str) and 0 < len(text) <= _DATA_READ else found


@dataclass(frozen=True)
class _Done:
    """A result within its limits, and its cost, cut and complete."""

    limited: LimitedResult
    result_id: str
    tokens: TokenInfo
    full_tokens: int


class Results:
    """Gets results, applies limits, and adds the cost to each result."""

    def __init__(
        self,
        estimator: Estimator,
        store: ResultStore | None = None,
        options: ResultOptions | None = None,
        cache: ResultCache | None = None,
        price: Price | None = None,
        bounds: Limits = DEFAULT_LIMITS,
        learn: Learn | None = None,
    ) -> None:
        """`learn` is called soon after a successful result, with the call and a function that returns an example of the
        data in the result.
        """
        self._learn = learn
        self._later = Afterwards()
        self._estimator = estimator
        self._store = store
        self._options = options or ResultOptions()
        self._cache = cache or ResultCache()
        self._price = price
        self._bounds = bounds
        self._selecting = Selecting()
        self._reader = None if store is None else ResultReader(store, self.count_tokens, self._selecting)

    @classmethod
    def plain(cls, counter: TokenCounter) -> Results:
        """An instance with the default options and without a store."""
        return cls(Estimator("auto", counter))

    def use(self, options: ResultOptions) -> None:
        self._options = options

    def count_tokens(self, text: str) -> int:
        """Tokens of a text; raises ValueError if the tokenizer fails on it."""
        return self._estimator.counter.count_tokens(text)

    def count_or_most(self, text: str) -> int:
        """Tokens of a text; if the tokenizer fails on it, the maximum possible."""
        return self._estimator.counter.count_or_most(text)

    async def keep(self, text: str, caller: Caller) -> str:
        """Keep a text for `read`; returns its id, or nothing if it cannot be kept."""
        if self._store is None:
            return ""
        limits, result_id = ResultLimits(max_tokens=self._bounds.reply_tokens), new_result_id()
        pieces = await asyncio.to_thread(whole_pieces, Reading(told(text)), limits, self.count_tokens)
        return result_id if await self._store.keep(result_id, caller.reader, pieces, limits.max_tokens) else ""

    @property
    def are_counted(self) -> bool:
        """Whether any result was counted so far."""
        return self._estimator.is_used

    def begin(self) -> None:
        """Begin to load what counting needs: a result is about to be asked for."""
        self._estimator.begin()

    async def answer(self, call: Call, ask: Ask) -> dict[str, Any]:
        """The server's result, or a cached one, within the limits, with its cost."""
        treatment = self._options.of(call.server, call.tool)
        if call.is_whole:
            treatment = replace(
                _AS_IT_IS, cache_seconds=treatment.cache_seconds, is_cached_by_name=treatment.is_cached_by_name
            )
        seconds = treatment.cache_seconds if call.only_reads or treatment.is_cached_by_name else 0
        if not seconds or call.has_answers or not call.caller.is_distinct:
            asked = self._written if self._options.may_cache else self._asked
            return await asked(call, ask, treatment)
        started = time.perf_counter()
        key = call.cache_key
        if (kept := self._cache.get(key)) is not None and await self._can_be_read(kept, call):
            return self._served_again(kept, started)
        result, is_shared, may_keep = await self._cache.once(key, lambda: self._asked(call, ask, treatment))
        if is_shared and not is_interim(result):
            return self._served_again(result, started)
        if is_shared:
            # A request for input, or a task, belongs to one caller, so this caller makes its own call.
            return await self._asked(call, ask, treatment)
        if may_keep and not result.get("isError") and result.get("resultType", "complete") == "complete":
            self._cache.put(key, result, wire_size(result), seconds)
        return result

    async def _written(self, call: Call, ask: Ask, treatment: Treatment) -> dict[str, Any]:
        """Make a call that may write: nothing read from its server before the call ends is served from the cache."""
        if call.reads:
            return await self._asked(call, ask, treatment)
        self._cache.clear(call.server)
        try:
            return await self._asked(call, ask, treatment)
        finally:
            await self._cache.written(call.server)

    async def _can_be_read(self, kept: Mapping[str, Any], call: Call) -> bool:
        """Whether the complete result behind a cached one is still kept."""
        about = kept["_meta"].get(RESULT_META_KEY)
        return about is None or self._store is None or await self._store.has(about["resultId"], call.caller.reader)

    def _served_again(self, kept: Mapping[str, Any], started: float) -> dict[str, Any]:
        metadata = ResponseMetadata(performance=PerformanceInfo.since(started)._replace(cached_result=True))
        return with_metadata(kept, metadata, plain=self._options.plain_meta)

    async def _asked(self, call: Call, ask: Ask, treatment: Treatment) -> dict[str, Any]:
        started = time.perf_counter() - call.seconds_before
        self.begin()
        result = of_a_tool(await ask())
        if is_interim(result):
            return result
        performance = PerformanceInfo.since(started)
        reading = Reading(result)
        if self._learn is not None and not result.get("isError"):
            self._later.do(partial(self._learn, call, partial(_example, reading)))
        if call.select is not None and not result.get("isError"):
            return await self._selected(reading, call.select, treatment, call, performance)
        return await self._finished(reading, treatment, call, performance)

    async def of_task(self, call: Call, result: dict[str, Any]) -> dict[str, Any]:
        """The result of a task as `answer` gives that of a call. The task may have changed something until now."""
        if not call.reads:
            self._cache.clear(call.server)
            await self._cache.written(call.server)

        async def ask() -> dict[str, Any]:
            return result

        return await self._asked(call, ask, _AS_IT_IS if call.is_whole else self._options.of(call.server, call.tool))

    async def together(self, calls: Sequence[OneOfMany], call: Call, started: float) -> dict[str, Any]:
        """The results of many calls of one tool as one, within the limits of that tool. What the call selects is
        selected from each of them.
        """
        performance = PerformanceInfo.since(started)
        reading = Reading(await asyncio.to_thread(combined, calls))
        treatment = self._options.of(call.server, call.tool)
        values = values_of(calls) if call.select is not None and not reading.result["isError"] else None
        if values is None:
            return await self._finished(reading, treatment, call, performance, note_on(calls, says_why=False))
        select, why = partial(self._selecting.of_many, values=values), note_on(calls, says_why=True)
        assert call.select is not None
        return await self._selected(reading, call.select, treatment, call, performance, lambda one, _: select(one), why)

    async def described(self, result: dict[str, Any], started: float, call: Call = OF_NO_TOOL) -> dict[str, Any]:
        """An unchanged result with its cost; `started` is a value of `time.perf_counter`."""
        if is_interim(result):
            return result
        return await self._finished(Reading(result), _AS_IT_IS, call, PerformanceInfo.since(started))

    async def within(self, result: dict[str, Any], caller: Caller, started: float, most: int) -> dict[str, Any]:
        """A result of the gateway itself, with its cost, cut to `most` tokens; the rest is kept for `read`."""
        treatment = replace(_AS_IT_IS, max_tokens=most)
        return await self._finished(Reading(result), treatment, Call("", "", caller), PerformanceInfo.since(started))

    async def _finished(
        self, reading: Reading, treatment: Treatment, call: Call, performance: PerformanceInfo, notice: str = ""
    ) -> dict[str, Any]:
        await self._estimator.ready()
        if notice:
            reading = Reading(reading.in_text())
        limits = treatment.limits if self._store is not None else _NO_LIMITS
        room = max(SELECTED_ROOM, self.count_or_most(notice)) if notice else 0
        if (reserved := room if limits.max_tokens else 0) != limits.reserved:
            limits = replace(limits, reserved=reserved)
        if not notice and call.extent is None and (line := only_line(reading.result, limits)) is not None:
            return self._with_cost(reading.result, ResponseMetadata(self._estimator.estimate([line]), performance))
        work = partial(self._limited, reading, limits, treatment.encoding, call, notice)
        is_large = has_large(reading.result) or reading.size > _INLINE
        done = await asyncio.to_thread(work) if is_large else work()
        result, data = done.limited.result, done.limited.data
        if done.limited.pieces is not None:
            result = await self._kept(done, limits, call)
        data = with_extent(data, done.limited.extent, limits.max_rows, is_cut=done.limited.pieces is not None)
        return self._with_cost(result, ResponseMetadata(done.tokens, performance, data))

    def _with_cost(self, result: Mapping[str, Any], metadata: ResponseMetadata) -> dict[str, Any]:
        if self._price is not None and metadata.tokens is not None:
            metadata = metadata._replace(cost=self._price.of(metadata.tokens.estimated))
        return with_metadata(result, metadata, plain=self._options.plain_meta)

    def _limited(self, reading: Reading, limits: ResultLimits, encoding: Encoding, call: Call, notice: str) -> _Done:
        # Without limits nothing is cut, and an id that cannot be guessed costs a system call.
        result_id = new_result_id() if limits.are_set else ""
        count = PartwiseCount(self._estimator.counter.count_tokens)
        is_compact = encoding is not Encoding.ORIGINAL
        done = limited(
            reading,
            limits,
            count,
            result_id,
            call.judge,
            compact_json=is_compact,
        )
        if encoding in (Encoding.CSV, Encoding.TOON) and len(reading.slots) == 1:
            done = replace(done, result=in_encoding(done.result, encoding, count), shown=None)
        if "structuredContent" in done.result and not call.is_whole and reading.unsaid is NO_JSON:
            done = replace(done, result=marked_as_repeated(done.result))
        if notice:
            done = replace(done, result=and_told(done.result, notice), shown=None)
        is_cut = done.pieces is not None
        # A cut result was measured, so its tokens are exact.
        tokens = self._estimate(done.shown or Reading(done.result), count, exactly=is_cut)
        full = self._estimator.estimate(reading.texts).estimated if is_cut else tokens.estimated
        return _Done(done, result_id, tokens, full)

    async def _kept(self, done: _Done, limits: ResultLimits, call: Call) -> dict[str, Any]:
        """Keep the complete result and return the cut one; if it cannot be kept, the notice says so."""
        assert self._store is not None
        pieces, result = done.limited.pieces, done.limited.result
        assert pieces is not None
        if not await self._store.keep(done.result_id, call.caller.reader, pieces, limits.max_tokens):
            *content, _notice = result["content"]
            return {**result, "content": [*content, notice_block(NOT_KEPT)]}
        about = {"resultId": done.result_id, "unit": pieces.unit, "total": pieces.count}
        about |= {"nextOffset": done.limited.next_offset, "fullTokens": done.full_tokens}
        return with_meta(result, RESULT_META_KEY, about)

    def _estimate(self, reading: Reading, count: PartwiseCount, *, exactly: bool) -> TokenInfo:
        tokens = self._estimator.estimate(reading.texts, exactly=exactly, count=count)
        return tokens._replace(warning=f"{tokens.warning}; {NOT_COUNTED}") if reading.has_uncounted else tokens

    async def _selected(
        self,
        reading: Reading,
        select: Projection,
        treatment: Treatment,
        call: Call,
        performance: PerformanceInfo,
        choose: Choose | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """Only what the expression selects; the rest stays readable. Must not fail, because the call was made. `note`
        follows whatever is shown.
        """
        await self._estimator.ready()
        limits, is_at_most = treatment.limits, self._estimator.is_at_most
        try:
            selection = await (choose or self._selecting.of_result)(select, reading)
        except InvalidRequest as error:
            # The model did not ask for the complete result, so a sample is enough; all of it is kept.
            most = min(limits.max_tokens or _SAMPLE, _SAMPLE)
            sample = treatment if is_at_most(most, reading) else replace(treatment, max_tokens=most)
            return await self._finished(reading, sample, call, performance, _joined(note, not_selected(error)))
        most = limits.max_tokens - SELECTED_ROOM if limits.max_tokens else SENT_WHOLE
        if selection.is_guess and is_at_most(min(most, SENT_WHOLE), reading):
            return await self._finished(reading, treatment, call, performance, _joined(note, selection.whole))
        result_id, full_tokens = new_result_id(), self._estimator.estimate(reading.texts).estimated
        # The complete result of a wrong guess is worth keeping: the call may have changed something.
        is_worth_it = selection.is_guess or not is_at_most(NOT_WORTH_KEEPING, reading)
        pieces = await self._kept_whole(result_id, reading, limits, call) if is_worth_it else None
        extent = call.judge(around_of(reading)) if is_parsed(reading) else Extent.of(pieces.remark if pieces else "")
        part = replace(call, extent=extent.of_a_part(is_guess=selection.is_guess))
        found = await self._told(selection, treatment, part, performance, result_id if pieces else "", note)
        about: dict[str, Any] = found["_meta"].get(RESULT_META_KEY, {})
        if pieces is not None:
            about = {"resultId": result_id, "unit": pieces.unit, "total": pieces.count, **about}
        return with_meta(found, RESULT_META_KEY if about else SELECTION_META_KEY, {**about, "fullTokens": full_tokens})

    async def _kept_whole(self, result_id: str, reading: Reading, limits: ResultLimits, call: Call) -> Pieces | None:
        """Keep a complete result and return its pieces; None if it could not be kept."""
        if self._store is None:
            return None
        count = self._estimator.counter.count_tokens
        pieces = await asyncio.to_thread(lambda: whole_pieces(selectable(reading), limits, count, call.judge))
        return pieces if await self._store.keep(result_id, call.caller.reader, pieces, limits.max_tokens) else None

    async def _told(
        self,
        selection: Selection,
        treatment: Treatment,
        call: Call,
        performance: PerformanceInfo,
        result_id: str = "",
        note: str = "",
    ) -> dict[str, Any]:
        """A selection and its notice."""
        own = selection.notice(self._estimator.counter.count_or_zero, result_id, is_call=bool(call.tool))
        notice = _joined(note, own)
        if selection.shown is None:
            return await self._finished(Reading(told(notice_block(notice))), treatment, call, performance)
        return await self._finished(Reading(told(selection.shown)), treatment, call, performance, notice)

    def projection(self, select: str) -> Projection | None:
        """Compile the expression, if given; an invalid one is refused before the tool is called."""
        return Projection(select, self._bounds) if select else None

    async def value(self, result_id: str, caller: Caller, select: str, most: int) -> Any:
        """A kept result of this caller, or what is selected from it, as a value of at most `most` characters."""
        if self._store is None or self._reader is None:
            raise InvalidRequest("No results are kept here.")
        projection = self.projection(select)
        return await self._reader.value(await self._store.find(result_id, caller.reader), projection, most)

    async def read(
        self,
        result_id: str,
        caller: Caller = LOCAL,
        *,
        offset: int = 0,
        limit: int | None = None,
        select: str = "",
        search: str = "",
        for_model: bool = False,
    ) -> dict[str, Any]:
        """More of a result that was cut. For a model, pages of JSON have no more whitespace than the part it saw."""
        started = time.perf_counter()
        if self._store is None or self._reader is None:
            raise InvalidRequest("No results are kept here.")
        projection = self.projection(select)
        if projection is not None and (search or offset):
            raise InvalidRequest("select applies to the complete result: omit search and offset.")
        kept = await self._store.find(result_id, caller.reader)
        if projection is not None:
            selection = await self._reader.select(kept, projection)
            extent = (await self._reader.extent(kept)).of_a_part(is_guess=selection.is_guess)
            part = Call("", "", caller, extent=extent)
            treatment = replace(_AS_IT_IS, max_tokens=kept.max_tokens)
            return await self._told(selection, treatment, part, PerformanceInfo.since(started))
        is_compact = for_model and self._options.everywhere.encoding is not Encoding.ORIGINAL
        found, extent = await self._reader.read_on(kept, offset, limit, search, is_compact=is_compact)
        return await self.described(found, started, replace(OF_NO_TOOL, extent=extent))


def _joined(*notices: str) -> str:
    return "\n".join(filter(None, notices))
