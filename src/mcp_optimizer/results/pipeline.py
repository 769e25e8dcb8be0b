"""What happens to every result between its server and the model. Called by the gateway, whatever the road.

Looks at the clock, works in a thread where a result is large, and waits for the database only where a result
has to be kept; what is done to a result stands in the pure modules of this room.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jsonschema_rs

from mcp_optimizer.caller import LOCAL, Caller
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.limits import Limited, Limits, limited, whole_pieces
from mcp_optimizer.results.metadata import (
    NOT_COUNTED,
    PerformanceInfo,
    ResponseMetadata,
    TokenInfo,
    with_metadata,
)
from mcp_optimizer.results.options import ResultOptions
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.reader import ResultReader, selected
from mcp_optimizer.results.reading import NO_JSON, Reading
from mcp_optimizer.results.store import ResultStore
from mcp_optimizer.token_counter import TokenCounter

RESULT_META_KEY = "mcp-optimizer/result"
"""Where a reply says which whole result stands behind it, and what that would have cost."""

NOT_KEPT = "[Cut. The rest could not be kept; ask the tool for less at a time.]"

_SELECTED_ROOM = 100
"""Tokens that are kept free to say where all of a result can be read, or why nothing was selected of it."""

_LONGEST_REASON = 80

_INLINE = 32 * 1024
"""Characters of text that are dealt with at once; more would hold up other calls, and goes to a thread."""

Ask = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Call:
    """What was called, by whom."""

    server: str
    tool: str
    caller: Caller = LOCAL
    output_schema: Mapping[str, Any] | None = None
    select: Projection | None = None


@dataclass(frozen=True)
class _Done:
    """A result within its limits, and what it costs, cut and whole."""

    limited: Limited
    result_id: str
    tokens: TokenInfo
    full_tokens: int


class Results:
    """Asks for results, holds them to their limits, and says of each what it cost."""

    def __init__(
        self, estimator: Estimator, store: ResultStore | None = None, options: ResultOptions | None = None
    ) -> None:
        self._estimator = estimator
        self._store = store
        self._options = options or ResultOptions()
        self._reader = ResultReader(store, estimator.counter.count_tokens) if store is not None else None

    @classmethod
    def plain(cls, counter: TokenCounter) -> Results:
        """With the defaults, and nothing kept."""
        return cls(Estimator("auto", counter))

    def warm_up(self) -> None:
        """Load what counts tokens, so that the first call does not wait for it."""
        self._estimator.estimate(["x"])

    async def answer(self, call: Call, ask: Ask) -> dict[str, Any]:
        """Ask the server; its result within the limits, with what it cost."""
        started = time.perf_counter()
        result = await ask()
        if result.get("resultType") == "input_required":
            # No result yet: the server asks for more first.
            return result
        performance = _performance(started)
        limits = self._options.of(call.server, call.tool).limits
        reading = Reading(result)
        if call.select is not None and not result.get("isError"):
            return await self._selected(reading, call.select, limits, call, performance)
        return await self._finished(reading, limits, call, performance)

    async def described(self, result: dict[str, Any], started: float) -> dict[str, Any]:
        """A result that is sent as it is, with what it cost; `started` is by `time.perf_counter`."""
        return await self._finished(Reading(result), Limits(), Call("", ""), _performance(started))

    async def _finished(
        self, reading: Reading, limits: Limits, call: Call, performance: PerformanceInfo, notice: str = ""
    ) -> dict[str, Any]:
        limits = limits if self._store is not None else Limits()
        work = partial(self._limited, reading, limits, call, notice)
        done = await asyncio.to_thread(work) if reading.size > _INLINE else work()
        result, data = done.limited.result, done.limited.data
        if done.limited.pieces is not None:
            result = await self._kept(done, limits, call)
        if data is not None:
            limit = limits.max_rows if data.row_count is not None else 0
            data = replace(data, truncated=done.limited.pieces is not None, max_rows_limit=limit or None)
        metadata = ResponseMetadata(tokens=done.tokens, performance=performance, data=data)
        return with_metadata(result, metadata, plain=self._options.plain_meta)

    def _limited(self, reading: Reading, limits: Limits, call: Call, notice: str) -> _Done:
        result_id = new_result_id()
        count = self._estimator.counter.count_tokens
        done = limited(reading, limits, count, result_id, _validity(call.output_schema))
        if notice:
            done = replace(done, result=_and_told(done.result, notice))
        if done.pieces is None:
            tokens = self._estimate(Reading(done.result) if notice else reading)
            return _Done(done, result_id, tokens, tokens.estimated)
        full = self._estimator.estimate(reading.texts).estimated
        return _Done(done, result_id, self._estimate(Reading(done.result)), full)

    async def _kept(self, done: _Done, limits: Limits, call: Call) -> dict[str, Any]:
        """The cut result, once all of it is kept."""
        assert self._store is not None
        pieces, result = done.limited.pieces, done.limited.result
        assert pieces is not None
        if not await self._store.keep(done.result_id, call.caller.key, pieces, limits.max_tokens):
            *content, _notice = result["content"]
            return {**result, "content": [*content, _text(NOT_KEPT)]}
        about = {"resultId": done.result_id, "unit": pieces.unit, "total": pieces.count}
        about |= {"nextOffset": done.limited.next_offset, "fullTokens": done.full_tokens}
        return _with_meta(result, RESULT_META_KEY, about)

    def _estimate(self, reading: Reading) -> TokenInfo:
        tokens = self._estimator.estimate(reading.texts)
        return replace(tokens, warning=f"{tokens.warning}; {NOT_COUNTED}") if reading.has_uncounted else tokens

    async def _selected(
        self, reading: Reading, select: Projection, limits: Limits, call: Call, performance: PerformanceInfo
    ) -> dict[str, Any]:
        """Only what the expression selects; the whole result can be read. The call was made, so nothing fails here."""
        within = replace(limits, max_tokens=limits.max_tokens - _SELECTED_ROOM if limits.max_tokens else 0)
        try:
            value = await asyncio.to_thread(_projected, reading, select)
        except InvalidRequest as error:
            reason = str(error).encode("ascii", "replace").decode()[:_LONGEST_REASON]
            notice = f"[Not selected: {reason}]"
            return await self._finished(reading, within, call, performance, notice)
        if self._store is None:
            return await self._finished(Reading(selected(value)), within, call, performance)
        result_id = new_result_id()
        pieces = await asyncio.to_thread(whole_pieces, reading, limits, self._estimator.counter.count_tokens)
        is_kept = await self._store.keep(result_id, call.caller.key, pieces, limits.max_tokens)
        notice = f'[Selected. All of it: read_result(result_id="{result_id}").]' if is_kept else ""
        found = await self._finished(Reading(selected(value)), within, call, performance, notice)
        full_tokens = self._estimator.estimate(reading.texts).estimated
        about = {"resultId": result_id, "unit": pieces.unit, "total": pieces.count, "fullTokens": full_tokens}
        return _with_meta(found, RESULT_META_KEY, {**about, **found["_meta"].get(RESULT_META_KEY, {})})

    async def read(
        self,
        result_id: str,
        caller: Caller = LOCAL,
        *,
        offset: int = 0,
        limit: int | None = None,
        select: str = "",
        search: str = "",
    ) -> dict[str, Any]:
        """More of a result that was cut."""
        started = time.perf_counter()
        if self._store is None or self._reader is None:
            raise InvalidRequest("No results are kept here.")
        projection = Projection(select) if select else None
        kept = await self._store.find(result_id, caller.key)
        if projection is not None:
            value = projection.of(await self._reader.value(kept))
            call = Call("", "", caller)
            limits = Limits(max_tokens=kept.max_tokens)
            return await self._finished(Reading(selected(value)), limits, call, _performance(started))
        if search:
            found = await self._reader.search(kept, search, offset, limit)
        else:
            found = await self._reader.page(kept, offset, limit)
        return await self.described(found, started)


def _performance(started: float) -> PerformanceInfo:
    return PerformanceInfo(round((time.perf_counter() - started) * 1000))


def new_result_id() -> str:
    return f"r{secrets.token_hex(5)}"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _and_told(result: dict[str, Any], notice: str) -> dict[str, Any]:
    return {**result, "content": [*result["content"], _text(notice)]}


def _projected(reading: Reading, select: Projection) -> Any:
    value = reading.value if reading.structured is NO_JSON else reading.structured
    if value is NO_JSON:
        raise InvalidRequest("the result is no JSON")
    return select.of(value)


def _with_meta(result: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, Mapping) else {}), key: value}}


def _validity(schema: Mapping[str, Any] | None) -> Callable[[Any], bool] | None:
    """Whether structured content is what its tool declares; a schema that is itself broken admits everything."""
    if schema is None:
        return None

    def is_valid(value: Any) -> bool:
        try:
            # Offline: a schema must not make us fetch an address of its server's choice.
            return bool(jsonschema_rs.validator_for(dict(schema), offline=True).is_valid(value))
        except (ValueError, RecursionError):
            return True

    return is_valid
