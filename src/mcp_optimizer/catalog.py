"""The live catalog: which tools there are now, what they cost, and the index that finds them.

Listens to the pool, feeds ingestion, and publishes snapshots. A snapshot never changes; the newest one is
swapped in with one assignment. Ingesting and indexing happen beside that, in threads; a server that dies
leaves at once. Called by the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mcp_optimizer.db.models import McpTool, ServerStatus
from mcp_optimizer.ingestion.pipeline import Ingestion
from mcp_optimizer.ingestion.record import ToolRecord
from mcp_optimizer.lazy import lazy
from mcp_optimizer.memory import give_back
from mcp_optimizer.naming import public_names
from mcp_optimizer.search.engine import Encoder, Entry, SearchIndex
from mcp_optimizer.search.lexical import Floats, Vocabulary
from mcp_optimizer.search.ranker import Mask
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_TOGETHER = 0.5
"""Seconds between indexes while servers are taken in, at the least; and while an index takes a tenth of the time."""

_REINDEX_INTERVAL = 5.0
"""Seconds between indexes while servers are embedded one after the other."""


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool of a running server, as clients see it."""

    record: ToolRecord
    name: str
    tokens: int

    @property
    def server(self) -> str:
        return self.record.server

    @property
    def definition(self) -> McpTool:
        """The definition under its public name; otherwise exactly what the server sent."""
        details = self.record.details
        return details if details.name == self.name else details.model_copy(update={"name": self.name})


@dataclass(frozen=True)
class Snapshot:
    """All that is known at one moment. Tools stand at their position in `index`; None: not running now."""

    tools: tuple[CatalogTool | None, ...] = ()
    index: SearchIndex = field(default_factory=lambda: SearchIndex((), Vocabulary()))
    states: Mapping[str, UpstreamState] = field(default_factory=dict)
    baseline_tokens: int = 0
    encoder_is_loading: bool = False

    @lazy
    def allowed(self) -> Mask:
        return np.array([tool is not None for tool in self.tools], dtype=np.bool_)

    @lazy
    def by_name(self) -> dict[str, CatalogTool]:
        return {tool.name: tool for tool in self.running}

    @lazy
    def running(self) -> tuple[CatalogTool, ...]:
        """The tools of running servers, by server and name."""
        return tuple(tool for tool in self.tools if tool is not None)

    def at(self, positions: Iterable[int]) -> list[CatalogTool]:
        return [tool for position in positions if (tool := self.tools[position]) is not None]

    @lazy
    def indexed_servers(self) -> frozenset[str]:
        return frozenset(tool.server for tool in self.running)

    @property
    def is_starting(self) -> bool:
        """Whether a server has still to come up, or one that is up to be taken in."""
        return any(
            state.status is ServerStatus.STARTING
            or (state.status is ServerStatus.RUNNING and state.listing.size and state.name not in self.indexed_servers)
            for state in self.states.values()
        )

    def missing(self) -> list[UpstreamState]:
        """Servers whose tools cannot be found now, though they are configured and not disabled."""
        return [
            state
            for state in self.states.values()
            if state.status in (ServerStatus.STARTING, ServerStatus.FAILED)
            or (state.status is ServerStatus.RUNNING and state.listing.size and state.name not in self.indexed_servers)
        ]


class LiveCatalog:
    """Keeps the newest snapshot. `on_state` is the pool's listener."""

    def __init__(
        self,
        ingestion: Ingestion,
        vocabulary: Vocabulary,
        counter: TokenCounter,
    ) -> None:
        self._ingestion = ingestion
        self._vocabulary = vocabulary
        self._counter = counter
        self._encoder: Encoder | None = None
        self._vectors: dict[str, Floats] = {}
        self.encoder_is_loading = False
        self._is_closing = False
        self._to_take_in = 0
        self._to_embed = 0
        self._indexed_at = 0.0
        self._next_index_at = 0.0
        self._states: dict[str, UpstreamState] = {}
        self._listings: dict[str, int] = {}
        self._records: dict[str, list[ToolRecord]] = {}
        self._indexed: tuple[ToolRecord, ...] = ()
        self._index = SearchIndex((), vocabulary)
        self._renamed_tokens: dict[tuple[str, str], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._embedding = asyncio.Lock()
        self._indexing = asyncio.Lock()
        self._outdated = False
        self._news = asyncio.Event()
        self._published: tuple[int, frozenset[str]] | None = None
        self.snapshot = Snapshot()

    def on_state(self, state: UpstreamState) -> None:
        """Something changed about a server. Cheap, and in effect when it returns."""
        self._states[state.name] = replace(state, listing=state.listing.summary())
        if state.status is ServerStatus.RUNNING and state.listing.summary_of is None:
            number = self._listings[state.name] = self._listings.get(state.name, 0) + 1
            self._spawn(self._take_in(state, number))
        self._publish()

    async def use_encoder(self, encoder: Encoder | None) -> None:
        """The encoder is loaded: embed what was taken in so far, and everything that comes."""
        # Vectors of one encoder say nothing to another.
        self._encoder, self._vectors = encoder, {}
        self.encoder_is_loading = False
        for records in list(self._records.values()):
            self._spawn(self._embed(records))
        if encoder is None:
            self._outdated = True
            self._spawn(self._reindex())
        self._publish()

    def close(self) -> None:
        """Leave off embedding: what is not embedded yet is embedded at the next start."""
        self._is_closing = True

    async def store(self) -> None:
        """Write down everything taken in so far, once more: the database was not there before."""
        for name, records in list(self._records.items()):
            await self._ingestion.store(self._states[name].spec, records)
        if self._encoder is not None:
            await self._ingestion.store_vectors(self._vectors, self._encoder)

    async def caught_up(self) -> None:
        """Wait until everything listed so far can be found."""
        while self._tasks:
            # Not `gather`: whoever stops waiting must not stop the work.
            await asyncio.wait(self._tasks)

    async def changed(self) -> None:
        """Wait for the next snapshot."""
        await self._news.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Taking in a server's tools failed", exc_info=error)
        if not self._tasks and not self._is_closing:
            # Reading, counting and embedding thousands of tools leaves a hundred megabytes of free memory behind.
            asyncio.get_running_loop().run_in_executor(None, give_back)

    async def _take_in(self, state: UpstreamState, number: int) -> None:
        self._to_take_in += 1
        try:
            records = await self._ingestion.take_in(state.name, state.listing.tools)
            # Unless a newer listing overtook this one.
            is_newest = self._listings[state.name] == number
            if is_newest:
                self._records[state.name] = records
                self._outdated = True
        finally:
            self._to_take_in -= 1
            # Hundreds of servers at once are indexed together, not each by itself; a few are not kept waiting.
            if self._outdated and (not self._to_take_in or time.monotonic() > self._next_index_at):
                await self._reindex()
        if not is_newest:
            return
        await self._ingestion.store(state.spec, records)
        await self._embed(records)

    async def _embed(self, records: Sequence[ToolRecord]) -> None:
        """Make tools findable by what they mean. Until then they are found by their words."""
        encoder = self._encoder
        if encoder is None:
            return
        self._to_embed += 1
        # One server at a time: a dozen that start together must not take all processors.
        async with self._embedding:
            self._to_embed -= 1
            await self._embed_unknown(records, encoder, self._vectors)
        # With more to come, an index for each server would take longer than the embedding.
        if self._outdated and (not self._to_embed or time.monotonic() - self._indexed_at > _REINDEX_INTERVAL):
            await self._reindex()

    async def _embed_unknown(self, records: Sequence[ToolRecord], encoder: Encoder, vectors: dict[str, Floats]) -> None:
        unknown = [record for record in records if record.vector_key not in vectors]
        if not unknown or not self._goes_on_with(encoder):
            return
        try:
            async for found in self._ingestion.embed(unknown, encoder):
                vectors.update(found)
                self._outdated = True
                if not self._goes_on_with(encoder):
                    return
        except OSError as error:
            logger.warning("Tools of %s are found by their words only: %s", records[0].server, error)

    def _goes_on_with(self, encoder: Encoder) -> bool:
        return encoder is self._encoder and not self._is_closing

    async def _reindex(self) -> None:
        """Build a new index over everything taken in. Servers that come up meanwhile share the next one."""
        async with self._indexing:
            if not self._outdated:
                return
            self._outdated = False
            records = tuple(record for server in sorted(self._records) for record in self._records[server])
            vectors, started = self._vectors, time.monotonic()
            index = await asyncio.to_thread(self._build, records, self._encoder, vectors)
            self._indexed, self._index = records, index
            vectors.update(_vectors_of(index, records))
            self._indexed_at = time.monotonic()
            self._next_index_at = self._indexed_at + max(_TOGETHER, 10 * (self._indexed_at - started))
            self._publish()

    def _build(
        self, records: Sequence[ToolRecord], encoder: Encoder | None, vectors: Mapping[str, Floats]
    ) -> SearchIndex:
        found = [vectors.get(record.vector_key) for record in records]
        entries = [
            Entry(record.server, record.name, record.counts, vector)
            for record, vector in zip(records, found, strict=True)
        ]
        return SearchIndex(entries, self._vocabulary, encoder)

    def _publish(self) -> None:
        running = frozenset(name for name, state in self._states.items() if state.status is ServerStatus.RUNNING)
        if self._published == (id(self._index), running):
            # Only a server's state changed, not what can be found.
            self.snapshot = replace(self.snapshot, states=dict(self._states), encoder_is_loading=self._is_preparing())
        else:
            self.snapshot = self._compose(running)
            self._published = (id(self._index), running)
        self._news.set()
        self._news = asyncio.Event()

    def _is_preparing(self) -> bool:
        """Whether search will soon go by meaning, but does not yet: the encoder loads, or has embedded nothing."""
        waits_for_vectors = self._encoder is not None and bool(self._indexed) and self._index.by_words_only
        return self.encoder_is_loading or waits_for_vectors

    def _compose(self, running: frozenset[str]) -> Snapshot:
        found = [record for record in self._indexed if record.server in running]
        names = iter(public_names([(record.server, record.name) for record in found]))
        tools = tuple(
            self._named(record, next(names)) if record.server in running else None for record in self._indexed
        )
        baseline = sum(tool.tokens for tool in tools if tool is not None)
        return Snapshot(tools, self._index, dict(self._states), baseline, self._is_preparing())

    def _named(self, record: ToolRecord, name: str) -> CatalogTool:
        if name == record.name:
            return CatalogTool(record, name, record.token_count)
        # Two servers have a tool of this name: it is sent, and therefore counted, under a longer one.
        key = (record.definition_hash, name)
        if key not in self._renamed_tokens:
            self._renamed_tokens[key] = self._count(record.details.model_copy(update={"name": name}))
        return CatalogTool(record, name, self._renamed_tokens[key])

    def _count(self, tool: McpTool) -> int:
        try:
            return self._counter.count_tool_tokens(tool)
        except Exception:
            # As at ingestion: what the tokenizer chokes on must not cost the tools, or whoever told us the news.
            logger.exception("The tool %r could not be counted; it counts as 0", tool.name)
            return 0


def _vectors_of(index: SearchIndex, records: Sequence[ToolRecord]) -> dict[str, Floats]:
    """The vectors as the index holds them: kept in that way, they take no memory of their own."""
    return {
        record.vector_key: vector for record, vector in zip(records, index.vectors, strict=True) if vector is not None
    }
