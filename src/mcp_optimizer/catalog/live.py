"""The live catalog: the tools that exist now, what they cost, and the index that finds them.

Listens to the pool, feeds ingestion, and publishes immutable snapshots, which the gateway reads. Ingesting, indexing
and naming run in threads. A server that dies is removed at once, however many tools there are. With more servers, one
announcement covers more changes, because every listener examines all servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import is_

from mcp_optimizer.catalog.admissions import Admissions, AdmitsAll, ToolAdmission, WaitingListings
from mcp_optimizer.catalog.building import BuiltIndex, IndexPlan, RunningTools, build, taken_over, wire_json
from mcp_optimizer.catalog.embedding import Embedding, KnownVectors
from mcp_optimizer.catalog.ingestion import Ingestion, RecalledServer
from mcp_optimizer.catalog.snapshot import Snapshot
from mcp_optimizer.catalog.tools import CatalogTool, ServerText, ToolRecord
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.runtime.memory import LongLived, give_back
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import KnownServer, UpstreamState

_PAUSE_EACH = 0.00005
_LONGEST_PAUSE = 0.25
"""Seconds between two announcements: per server, and the maximum. With a dozen servers the pause is not noticeable."""


class ChangeAnnouncements:
    """Wakes any number of waiters at the next change."""

    def __init__(self) -> None:
        self._news: asyncio.Event | None = None
        self._is_due = False
        self._told_at = 0.0
        self.told = 0
        """Number of announcements that had waiters."""

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    def tell(self, servers: int) -> None:
        """Announce a change in a catalog of so many servers. Changes in one turn of the loop share an announcement."""
        if self._news is None or self._is_due:
            return
        self._is_due = True
        loop = asyncio.get_running_loop()
        pause = self._told_at + min(_PAUSE_EACH * servers, _LONGEST_PAUSE) - loop.time()
        if pause > 0:
            loop.call_later(pause, self._tell)
        else:
            loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._told_at = asyncio.get_running_loop().time()
        if self._news is not None:
            self.told += 1
            self._news.set()
            self._news = None


logger = logging.getLogger(__name__)

_TOGETHER = 0.5
"""Minimum seconds between indexes while servers are ingested, or ten times as long as the last index took."""

_TAKEN_IN = 10.0
"""Maximum seconds that `taken_in` waits for the tools to become listable."""

_REINDEX_INTERVAL = 5.0
"""Seconds between indexes while servers are embedded one after the other."""

_AT_ONCE = 4
"""Servers ingested at the same time."""


class LiveCatalog:
    """Holds the newest snapshot. `on_state` is the pool's listener.

    No server's tool may get one of `own_names`, the names of the gateway's tools. `admission` decides which of the
    listed tools exist.
    """

    def __init__(
        self,
        ingestion: Ingestion,
        vocabulary: Vocabulary,
        counter: TokenCounter,
        own_names: Iterable[str] = OWN_NAMES,
        admission: ToolAdmission | None = None,
    ) -> None:
        self._ingestion = ingestion
        self._vocabulary = vocabulary
        self._counter = counter
        self._own_names = tuple(own_names)
        self._embedding = Embedding(ingestion, self._needs_index)
        self._is_closing = False
        self._arrivals = WaitingListings()
        self._indexed_at = 0.0
        self._next_index_at = 0.0
        self._long_lived = LongLived()
        self._records: dict[str, Sequence[ToolRecord]] = {}
        self._said: dict[str, ServerText] = {}
        self._admissions = Admissions(admission or AdmitsAll())
        self._tasks = BackgroundTasks(logger, "Adding a server's tools to the catalog failed", on_idle=self._rested)
        self._indexing = asyncio.Lock()
        self._outdated = False
        self._news = ChangeAnnouncements()
        self.own_changes = 0
        """How often something changed that only callers' own views show."""
        self._asked_for: set[str] = set()
        """Servers whose stored listing was already requested."""
        self._to_recall: set[str] = set()
        self._recalling: asyncio.Task[None] | None = None
        self._known: dict[str, RecalledServer] = {}
        """What servers said of themselves when they were listed last, until it is asked for."""
        # Searches read these from threads while the event loop changes them.
        self._changing = threading.Lock()
        self._states: dict[str, UpstreamState] = {}
        self._index = SearchIndex((), vocabulary)
        self._running = RunningTools()
        self._forgotten: set[str] = set()
        """Servers whose tools in the index are no longer valid."""
        self._expected: set[str] = set()
        """Servers whose tools in the index come from an earlier listing and are not confirmed yet."""
        self._unapproved = self._admissions.unapproved()
        self._snapshot: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot."""
        return self._snapshot or self._composed()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot made elsewhere until something changes, for a catalog that is only reported on."""
        self._snapshot = snapshot

    def expect_encoder(self) -> None:
        """Note that an encoder is being loaded: until `use_encoder`, search uses only words and reports that."""
        self._embedding.expect()
        self._snapshot = None

    def on_state(self, state: UpstreamState) -> None:
        """Handle a change of a server's state. Cheap, and in effect when it returns."""
        is_running = state.status is ServerStatus.RUNNING
        is_new = state.name not in self._states
        with self._changing:
            self._expect(state)
            self._states[state.name] = self._admissions.shown(state)
            is_there = is_running or state.name in self._expected
            self._running.switch(state.name, on=is_there and state.name not in self._forgotten)
            self._snapshot = None
        if state.status is ServerStatus.STARTING and state.name not in self._asked_for:
            self._recall_later(state.name)
        if is_running and state.listing.summary_of is None:
            self._take_in_later(state)
        if is_new and self._records:
            # A name that referred to another server may now refer to this one.
            self._outdated = True
            self._tasks.spawn(self._reindex())
        self._tell()

    def _expect(self, state: UpstreamState) -> None:
        """Note whether a server's tools in the index come from its earlier listing. That holds until its new listing,
        which may differ and is not admitted yet, is ingested.
        """
        name, before = state.name, self._states.get(state.name)
        was_running = before is not None and before.status is ServerStatus.RUNNING
        if state.status in (ServerStatus.STARTING, ServerStatus.RESTING):
            is_expected = name in self._records
        elif state.status is not ServerStatus.RUNNING:
            is_expected = False
        elif state.listing.summary_of is not None or was_running:
            is_expected = name in self._expected
        else:
            is_expected = name in self._records and not self._admissions.has(state)
        (self._expected.add if is_expected else self._expected.discard)(name)

    def _recall_later(self, server: str) -> None:
        self._asked_for.add(server)
        self._to_recall.add(server)
        if len(self._to_recall) == 1:
            # All servers of a start are told of in one turn, and looked for together.
            self._recalling = self._tasks.spawn(self._recall())

    async def recalled(self, spec: ServerSpec) -> KnownServer | None:
        """What is known of a server that was listed with the same entry; None if it has to run to be known."""
        while self._recalling is not None and not self._recalling.done():
            await asyncio.wait([self._recalling])
        known = self._known.pop(spec.name, None)
        # Comparing entries is slow on purpose, so it is done for servers that may rest, and for no others.
        if known is None or not await asyncio.to_thread(known.is_of, spec):
            return None
        is_expected = spec.name in self._expected and self._states[spec.name].spec == spec
        return replace(known.said, tools=len(self._records[spec.name])) if is_expected else None

    async def _recall(self) -> None:
        """Have the tools of starting servers found as they listed them last."""
        specs = [self._states[name].spec for name in self._to_recall if name in self._states]
        self._to_recall.clear()
        known = await self._ingestion.recall_servers(specs)
        listings = await self._ingestion.recall(specs)
        counted = await self._ingestion.known_counts(
            tool.definition_hash for listing in listings.values() for tool in listing.tools
        )
        for name, listing in listings.items():
            if (state := self._awaited(name)) is not None:
                said = known[name].said.instructions if name in known else ""
                await self._take_back(replace(state, listing=listing, instructions=said), counted)
        self._known |= known
        # With their vectors, if the encoder is loaded by now: an index is not built twice.
        await self._recall_vectors()
        # Also when another index is being built, which may have their tools already: they are found when this returns.
        await self._reindex()

    def _awaited(self, server: str) -> UpstreamState | None:
        """The state of a server if it is starting and its tools are not known."""
        state = self._states.get(server)
        is_awaited = state is not None and state.status is ServerStatus.STARTING and server not in self._records
        return state if is_awaited else None

    async def _take_back(self, state: UpstreamState, counted: Mapping[str, int]) -> None:
        found = await self._admissions.recalled(state)
        said = ServerText(state.spec.description, found.instructions)
        records = await self._ingestion.take_in(state.name, found.definitions, said=said, counted=counted)
        now = self._awaited(state.name)
        # Skip it if the server came up meanwhile, or its name means another server by now.
        if records and now is not None and now.spec == state.spec:
            with self._changing:
                self._records[state.name], self._said[state.name] = records, said
                self._admissions.recall(state, found)
                self._expected.add(state.name)
                self._running.switch(state.name, on=state.name not in self._forgotten)
                self._snapshot = None
            self._outdated = True

    async def _recall_vectors(self) -> None:
        """Take the stored vectors of all tools, in one go; then embed those that have none, server by server."""
        await self._embedding.recall([record for records in self._records.values() for record in records])
        for records in list(self._records.values()):
            self._tasks.spawn(self._embed(records))

    def forget(self, server: str) -> None:
        """Remove a server that is gone or whose name means another one; its tools are gone when this returns."""
        with self._changing:
            self._states.pop(server, None)
            self._expected.discard(server)
            self._running.switch(server, on=False)
            self._forgotten.add(server)
            self._snapshot = None
        self._arrivals.forget(server)
        self._admissions.forget(server)
        self._asked_for.discard(server)
        self._records.pop(server, None)
        self._said.pop(server, None)
        self._outdated = True
        self._tasks.spawn(self._reindex())
        self._tell()

    def _take_in_later(self, state: UpstreamState) -> None:
        self._arrivals.supersede(state.name)
        # A server that lists the same tools as before is already in the catalog and costs nothing.
        if not self._admissions.has(state):
            self._arrivals.wait(state)
            if self._arrivals.under_way + self._arrivals.waiting <= _AT_ONCE:
                self._tasks.spawn(self._take_in_waiting())

    def reconsider(self, servers: Iterable[str]) -> None:
        """Admit the last listings of these servers again, after a decision about their tools."""
        for name in [name for name in servers if name in self._states and not self._arrivals.awaits(name)]:
            if (again := self._admissions.again(self._states[name], self._records.get(name, ()))) is not None:
                self._take_in_later(again)

    async def _take_in_waiting(self) -> None:
        while self._arrivals.waiting:
            state, number = self._arrivals.take()
            try:
                with self._admissions.under_way(state):
                    await self._take_in(state, number)
            except Exception:
                logger.exception("Cannot add the tools of %s to the catalog", state.name)
                self._give_up(state.name)
            finally:
                self._arrivals.end()
            # Index hundreds of servers together instead of one by one, without delaying a few.
            if self._outdated and (self._arrivals.is_over or time.monotonic() > self._next_index_at):
                await self._reindex()

    def _give_up(self, server: str) -> None:
        """Withdraw the tools of an earlier listing, because the server's present listing cannot be ingested."""
        if server in self._expected:
            with self._changing:
                self._expected.discard(server)
                self._forgotten.add(server)
                self._running.switch(server, on=False)
                self._snapshot = None
            self._records.pop(server, None)
            self._outdated = True

    async def use_encoder(self, encoder: Encoder | None) -> None:
        """Use a loaded encoder: embed all tools ingested so far and from now on."""
        self._embedding.use(encoder)
        self._snapshot = None
        self._tasks.spawn(self._recall_vectors())
        if encoder is None:
            self._outdated = True
            self._tasks.spawn(self._reindex())
        self._tell()

    def close(self) -> None:
        """Stop embedding; the remaining tools are embedded at the next start."""
        self._is_closing = True
        self._embedding.close()

    async def store(self) -> None:
        """Store everything ingested so far again, because the database was not available before."""
        for name, records in list(self._records.items()):
            if (state := self._states.get(name)) is not None:
                await self._ingestion.store(state.spec, records)
        await self._embedding.store()

    async def caught_up(self) -> None:
        """Wait until everything listed so far can be found."""
        await self._tasks.settled()

    async def changed(self) -> None:
        """Wait for the next snapshot."""
        await self._news.changed()

    async def taken_in(self) -> None:
        """Wait, for a limited time, until the gateway can list the tools that servers listed so far."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_IN):
                while not self._arrivals.is_over or self._outdated:
                    await self.changed()

    def own_changed(self) -> None:
        """Tell everybody who waits for a change that a caller's own view has changed."""
        self.own_changes += 1
        self._tell()

    def _tell(self) -> None:
        self._news.tell(len(self._states))

    def _rested(self) -> None:
        if not self._is_closing:
            # Reading, counting and embedding thousands of tools leaves a hundred megabytes of free memory behind.
            asyncio.get_running_loop().run_in_executor(None, give_back)

    async def _take_in(self, state: UpstreamState, number: int) -> None:
        admitted = await self._admissions.of(state)
        said = ServerText(state.spec.description, admitted.instructions)
        # The text about a server is part of how each of its tools is found.
        before = self._records.get(state.name, ()) if self._said.get(state.name) == said else ()
        records = await self._ingestion.take_in(state.name, admitted.definitions, before, said)
        # Skip it if a newer listing overtook this one.
        if self._arrivals.is_latest(state.name, number):
            is_whole = admitted.is_whole and self._admissions.was_whole(state.name)
            is_same = is_whole and _are_same(records, self._records.get(state.name))
            if not is_same:
                self._records[state.name] = records
            self._said[state.name] = said
            self._admissions.settle(state, admitted)
            self._show_instructions(state)
            if is_same:
                self._confirm(state.name)
            self._outdated = self._outdated or not is_same
            self._leave_alone()
            self._tasks.spawn(self._keep(state, records))

    def _confirm(self, server: str) -> None:
        """Note that a server listed the tools that the index already has."""
        with self._changing:
            self._expected.discard(server)
            self._snapshot = None
        self._tell()

    def _show_instructions(self, state: UpstreamState) -> None:
        with self._changing:
            if (now := self._states.get(state.name)) is not None:
                shown = self._admissions.shown(state).instructions
                self._states[state.name] = replace(now, instructions=shown)
                self._snapshot = None

    async def _keep(self, state: UpstreamState, records: Sequence[ToolRecord]) -> None:
        await self._ingestion.store(state.spec, records, state)
        await self._embed(records)

    async def _embed(self, records: Sequence[ToolRecord]) -> None:
        await self._embedding.embed(records)
        # If more servers wait, an index for each would take longer than the embedding.
        is_time = self._embedding.is_last or time.monotonic() - self._indexed_at > _REINDEX_INTERVAL
        if self._outdated and is_time and self._embedding.encoder is not None:
            await self._reindex()

    def _needs_index(self) -> None:
        self._outdated = True

    async def _reindex(self) -> None:
        """Build a new index over everything ingested. Servers that come up meanwhile share the next one."""
        async with self._indexing:
            if not self._outdated:
                return
            self._outdated = False
            started, vectors = time.monotonic(), self._embedding.vectors
            plan = IndexPlan(
                records=dict(self._records),
                servers=tuple(self._states),
                own_names=self._own_names,
                running=frozenset(self._running.servers),
                vocabulary=self._vocabulary,
                encoder=self._embedding.encoder,
                vectors=vectors.at_hand(),
                named=self._running.named,
                unapproved=self._admissions.unapproved(),
            )
            built = await asyncio.to_thread(build, plan, self._count)
            self._swap_in(plan, built, vectors)
            self._indexed_at = time.monotonic()
            self._next_index_at = self._indexed_at + max(_TOGETHER, 10 * (self._indexed_at - started))
            self._tell()

    def _swap_in(self, plan: IndexPlan, built: BuiltIndex, vectors: KnownVectors) -> None:
        with self._changing:
            kept = {server for server in plan.records if self._records.get(server) is not plan.records[server]}
            self._forgotten &= kept
            # Apply what happened to servers while the index was built.
            self._expected -= {name for name in self._expected if self._is_confirmed(name, plan)}
            running = {name for name, state in self._states.items() if state.status is ServerStatus.RUNNING}
            running |= self._expected
            for server in built.running.servers ^ (running - self._forgotten):
                built.running.switch(server, on=server not in built.running.servers)
            self._running, self._index, self._unapproved = built.running, built.index, plan.unapproved
            self._snapshot = None
        asyncio.get_running_loop().call_soon(self._leave_alone)  # Enough is freed in this turn of the loop.
        if built.vocabulary is not self._vocabulary:
            self._vocabulary = built.vocabulary
            self._ingestion.use_vocabulary(built.vocabulary)
        records, listed_since = taken_over(self._records, plan.records, built.records)
        self._records = dict(records)
        vectors.settle(built.vectors, plan.vectors, listed_since)

    def _is_confirmed(self, server: str, plan: IndexPlan) -> bool:
        """Whether a running server's tools in this plan are those that it lists now."""
        is_pending = self._arrivals.awaits(server) or self._admissions.is_under_way(server)
        is_built = server in plan.records and self._records.get(server) is plan.records[server]
        return self._states[server].status is ServerStatus.RUNNING and is_built and not is_pending

    def _leave_alone(self) -> None:
        self._long_lived.grown(self._index.size + sum(map(len, self._records.values())))

    def _composed(self) -> Snapshot:
        with self._changing:
            if self._snapshot is None:
                running = self._running
                tools, mask = running.frozen()
                self._snapshot = Snapshot(
                    tools,
                    self._index,
                    dict(self._states),
                    running.baseline_tokens,
                    self._embedding.is_preparing(self._index),
                    running.named.table,
                    mask,
                    self._unapproved.of(running.servers),
                    frozenset(self._expected),
                )
            return self._snapshot

    def named(self, record: ToolRecord, name: str) -> CatalogTool:
        """A tool that is not in the index, under a public name."""
        is_own = name == record.name
        return CatalogTool(
            record, name, record.token_count if is_own else self._count(wire_json(record.definition, name))
        )

    def _count(self, text: str) -> int:
        # As at ingestion: a text that the tokenizer fails on must not lose the tools.
        return self._counter.count_or_zero(text, "a tool under its longer name")


def _are_same(records: Sequence[ToolRecord], before: Sequence[ToolRecord] | None) -> bool:
    return before is not None and len(records) == len(before) and all(map(is_, records, before))
