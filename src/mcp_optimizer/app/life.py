"""Starts an optimizer, says whether it is ready, and stops it: one stack, ended under one deadline.

A part that fails or hangs while it ends is named in the log and does not keep the others from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

from mcp_optimizer.app.first_start import FIRST_LISTS
from mcp_optimizer.app.part_options import is_transparent, profiles_in_use
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import NotStarted, OptimizerError
from mcp_optimizer.runtime.loop_timers import LoopLag
from mcp_optimizer.runtime.memory import give_back, share_pools
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.last_requests import LastRequests
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

LEAST = 0.1
"""Minimum seconds for a part to end, even if the others used up all the time."""

End = Callable[[], Coroutine[Any, Any, None]]


class ShutdownSequence:
    """Ends parts, the last added first. Ends each once, however often it is called; later callers wait."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._ends_at = 0.0

    def add(self, what: str, end: End) -> None:
        self._stack.push_async_callback(self._end, what, end)

    def first(self, stop: Callable[[], None]) -> None:
        """Run `stop` at once, before the parts added so far end."""
        self._stack.callback(stop)

    async def all(self, seconds: float) -> None:
        """`seconds`: how long everything may take. A cancelled caller still begins to end the remaining parts."""
        async with self._turn:
            self._ends_at = time.monotonic() + seconds
            await self._stack.aclose()

    async def _end(self, what: str, end: End) -> None:
        left = max(LEAST, self._ends_at - time.monotonic())
        task = asyncio.create_task(end())
        # No timeout around it: a part that does not end when asked may not end when cancelled, either.
        await asyncio.wait({task}, timeout=left)
        if not task.done():
            task.cancel()
            logger.error("Shutdown: %s did not end within %.1f s.", what, left)
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Shutdown: %s failed to end.", what, exc_info=error)


async def end_all(parts: Mapping[str, End], seconds: float) -> None:
    """End some parts, in their order. One that fails or takes too long is logged, and the others continue."""
    ending = ShutdownSequence()
    for what, end in reversed(list(parts.items())):
        ending.add(what, end)
    await ending.all(seconds)


_UNUSED = 10.0
"""Seconds after the start for which the tokenizer stays loaded without a call."""


class Life:
    """The life of one optimizer's parts, from start to end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._loading: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks(logger, "A part of the start failed")
        self._is_started = self._is_over = False
        self._is_settled = False
        self._stops_at: float | None = None
        self.requests = LastRequests()
        """HTTP requests in progress; shutdown accepts no more."""
        self.lag = LoopLag()
        # Ended from last to first, whether or not they were started: some are used without a start.
        self._ending = ShutdownSequence()
        self._ending.add("the database", parts.storage.close)
        self._ending.add("the results that were cut", parts.kept_results.stop)
        if parts.trail is not None:
            self._ending.add("the audit", parts.trail.stop)
        self._ending.add("the logins", parts.logins.close)
        self._ending.add("the keys of callers", parts.credentials.close)
        if parts.use is not None:
            self._ending.add("the counts of use", parts.use.stop)
        if parts.shapes is not None:
            self._ending.add("the shapes of results", parts.shapes.stop)
        self._ending.add("the history", parts.recorder.stop)
        self._ending.add("the accounts", parts.accounts.settled)
        self._ending.add("the approvals", parts.keeper.settled)
        self._ending.add("the catalog", parts.catalog.caught_up)
        self._ending.add("the callers' own listings", parts.own_listings.settled)
        self._ending.add("the servers", parts.pool.stop)
        self._ending.add("the arrivals of callers", parts.arrivals.close)
        if parts.scripts is not None:
            self._ending.add("the workers of scripts", parts.scripts.close)
        if parts.stored_scripts is not None:
            self._ending.add("the stored scripts", parts.stored_scripts.stop)
        self._ending.add("the lists of tools", parts.refresher.stop)
        self._ending.add("the signposts", parts.signposts.stop)
        self._ending.add("the lists of other gateways", parts.shared_lists.stop)
        if parts.neighbours is not None:
            self._ending.add("the other gateways", parts.neighbours.peers.leave)
        self._ending.add("the announcements", parts.announcements.stop)
        self._ending.first(self._leave_off)

    def start(self, listed: Sequence[UpstreamState] = (), *, saves_memory: bool = False) -> None:
        """Begin to start the servers; returns at once. `listed`: servers that are only shown, not started."""
        self._is_started = True
        parts = self._parts
        share_pools()
        if self._settings.http is not None:
            self.lag.start()
        parts.storage.open(self._opened_late)
        parts.announcements.start()
        parts.shared_lists.start()
        self._loading = self._tasks.spawn(self._load_encoder(saves_memory=saves_memory))
        for state in [*parts.pool.states(), *listed]:
            parts.catalog.on_state(state)
        if parts.serving is not None:
            for state in parts.pool.states():
                parts.serving.relay.on_state(state)
        parts.pool.start()
        self._tasks.spawn(self._settle())
        if parts.use is not None:
            self._tasks.spawn(parts.use.start())
        if parts.shapes is not None:
            self._tasks.spawn(parts.shapes.start())
        if parts.stored_scripts is not None:
            parts.stored_scripts.start()
        parts.refresher.start(profiles_in_use(self._settings))
        parts.signposts.start()
        self._tasks.spawn(self._follow_approvals())
        if self._settings.history and self._settings.database_place is not None:
            parts.recorder.start()
        if parts.trail is not None:
            parts.trail.start()

    async def wait_for_servers(self, seconds: float) -> None:
        """Wait until every server is up or has failed, and its tools can be found."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._parts.pool.settled(seconds)
                if self._loading is not None:
                    await asyncio.shield(self._loading)
                await self._parts.catalog.caught_up()

    async def _settle(self) -> None:
        """Wait until the servers' tools can be found; for slow servers only a limited time."""
        catalog = self._parts.catalog
        await self._parts.pool.settled(FIRST_LISTS)
        while any(state.status is ServerStatus.RUNNING for state in catalog.snapshot.missing()):
            await catalog.changed()
        await self._know_other_gateways()
        self._is_settled = True
        await asyncio.sleep(_UNUSED)
        if not self._parts.gateway.results.are_counted:
            # It has counted the tools, and is not needed again until the first call.
            self._parts.counter.give_back()
            give_back()

    async def _know_other_gateways(self) -> None:
        """Sessions of other gateways are verified with a key in the database, so read it before reporting ready."""
        storage = self._parts.storage
        if self._settings.http is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LISTS):
                await storage.opened()
                await storage.signatures.look()

    async def _opened_late(self) -> None:
        await self._parts.catalog.store()
        if self._parts.serving is not None:
            self._parts.serving.relay.store_lists()
        self._parts.keeper.look_again()

    async def _follow_approvals(self) -> None:
        """Makes tools approved here or in another process available at once."""
        catalog, serving = self._parts.catalog, self._parts.serving
        while True:
            decided = await self._parts.keeper.decided()
            catalog.reconsider(decided)
            self._parts.own_listings.reconsider(decided)
            await catalog.taken_in()
            if serving is not None and is_transparent(self._settings):
                serving.relay.announce_tools()

    async def _load_encoder(self, *, saves_memory: bool) -> None:
        """Load the encoder in the background; until then, search uses words only and says so."""
        choice, catalog = self._settings.encoder, self._parts.catalog
        if choice == "none":
            return
        catalog.expect_encoder()
        try:
            choosing = await asyncio.to_thread(import_module, "mcp_optimizer.search.encoders.choose")
            key = self._settings.encoder_key
            encoder = await asyncio.to_thread(choosing.load_encoder, choice, key, saves_memory=saves_memory)
        except (OptimizerError, OSError, ImportError, RuntimeError, ValueError) as error:
            logger.warning("The encoder %r cannot be used: %s. Searching by words only.", choice, error)
            encoder = None
        await catalog.use_encoder(encoder)

    @property
    def is_ready(self) -> bool:
        """Whether a tool can be found and called: the servers had their time to start, and one of them runs.

        Without any server there is nothing to wait for.
        """
        if self._stops_at is not None or not self._is_settled:
            return False
        missing = {state.name for state in self._parts.catalog.snapshot.missing()}
        used = [state for state in self._parts.pool.states() if state.status is not ServerStatus.STOPPED]
        return not used or any(state.is_available and state.name not in missing for state in used)

    def announce_stop(self) -> None:
        """Report not ready. Calls are still accepted, until `drained`."""
        if self._stops_at is None:
            self._stops_at = time.monotonic() + self._settings.shutdown_timeout
            self.requests.announce_stop()

    async def drained(self) -> None:
        """Accept no more calls, and wait for those in progress: as long as the settings say, however often called."""
        self.announce_stop()
        assert self._stops_at is not None
        # Whole requests first: an accepted one may still have calls to make.
        await self.requests.finished(max(0.0, self._stops_at - time.monotonic()))
        await self._parts.pool.drained(max(0.0, self._stops_at - time.monotonic()))

    async def stop(self, seconds: float) -> None:
        """End everything, one part after the other, whatever fails or hangs.

        `seconds` is how long that may take after the calls in progress have ended.
        """
        try:
            await self.drained()
        finally:
            await self._ending.all(seconds)

    def check_running(self) -> None:
        """Raises NotStarted where a program would otherwise get an answer without any servers."""
        if not self._is_started:
            raise NotStarted(
                "This Optimizer is not started, so it knows no tools: use it inside of `async with optimizer:`, or "
                "call `optimizer.start()` and `await optimizer.wait_for_servers(seconds)` first."
            )
        if self._is_over:
            raise NotStarted("This Optimizer has ended. Make another one with Optimizer.from_config.")

    def _leave_off(self) -> None:
        self._is_over = True
        self.lag.stop()
        self._parts.catalog.close()
        # A thread cannot be cancelled; do not wait for the encoder it loads.
        self._tasks.cancel()
