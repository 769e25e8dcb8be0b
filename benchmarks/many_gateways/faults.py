"""What is done to the three gateways and their database while clients use them, and when."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

from tests.cluster import Cluster, Gateway
from tests.postgres import Postgres, ask, full_disk, without_connections

from benchmarks.many_gateways.ledger import Fault, Harm, Ledger


@dataclass(frozen=True)
class Plan:
    """How long everything takes, in seconds."""

    whole: float = 1_800.0

    paused: float = 12.0
    away: float = 6.0
    every: float = 60.0
    """Between two deaths."""


class Faults:
    """Each method is one fault, from its beginning until everything is as before; it is written down when it is."""

    def __init__(self, cluster: Cluster, postgres: Postgres, database: str, ledger: Ledger, plan: Plan) -> None:
        self._cluster = cluster
        self._postgres = postgres
        self._database = database
        self._ledger = ledger
        self._plan = plan

    async def kill(self, gateway: Gateway) -> None:
        async with self._noted(Harm.KILLED, gateway):
            await asyncio.to_thread(gateway.kill)
        await asyncio.to_thread(self._cluster.restart, gateway)

    async def roll(self) -> None:
        """A rolling restart, as after an upgrade: the next one stops when the one before has its turn again."""
        for gateway in self._cluster.gateways:
            async with self._noted(Harm.TERMINATED, gateway):
                gateway.terminate()
                await asyncio.to_thread(self._cluster.restart, gateway)

    async def pause(self, gateway: Gateway) -> None:
        async with self._noted(Harm.PAUSED, gateway):
            with gateway.paused():
                await asyncio.sleep(self._plan.paused)
            await asyncio.to_thread(self._cluster.until_used, gateway)

    async def stop_database(self) -> None:
        await self._away("stopped", self._postgres.stopped())

    async def fill_database(self) -> None:
        await self._away("full", full_disk(self._database))

    async def restart_database(self) -> None:
        async with self._noted(Harm.DATABASE, what="restarted"):
            await asyncio.to_thread(self._postgres.restart)
            await asyncio.to_thread(self._until_it_answers)

    async def exhaust_connections(self) -> None:
        async with self._noted(Harm.DATABASE, what="without connections"), without_connections(self._database):
            await asyncio.sleep(self._plan.away)

    async def stop_database_and_kill(self, gateway: Gateway) -> None:
        """What the gateway has cut meanwhile is in its memory only, and lost with it."""
        killing = asyncio.create_task(self._kill_in(self._plan.away / 2, gateway))
        await self.stop_database()
        await killing

    async def every_minute(
        self,
        victims: Sequence[Gateway],
        deeds: Sequence[Callable[[], Awaitable[None]]],
        until: float | None = None,
    ) -> None:
        """One dies, is started again, and then the next deed is done: each deed once, or again and again until then."""
        again = itertools.cycle(deeds) if until is not None else deeds
        for victim, deed in zip(itertools.cycle(victims), again, strict=False):
            began = time.monotonic()
            if until is not None and began >= until:
                return
            await self.kill(victim)
            await asyncio.sleep(min(5.0, self._plan.every / 10))
            await deed()
            await asyncio.sleep(max(0.0, began + self._plan.every - time.monotonic()))

    async def _kill_in(self, seconds: float, gateway: Gateway) -> None:
        await asyncio.sleep(seconds)
        await self.kill(gateway)

    async def _away(self, what: str, fault: AbstractContextManager[None]) -> None:
        async with self._noted(Harm.DATABASE, what=what):
            await asyncio.to_thread(fault.__enter__)
            try:
                await asyncio.sleep(self._plan.away)
            finally:
                await asyncio.to_thread(fault.__exit__, None, None, None)

    @asynccontextmanager
    async def _noted(self, harm: Harm, gateway: Gateway | None = None, what: str = "") -> AsyncIterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            name = gateway.name if gateway is not None else ""
            self._ledger.faults.append(Fault(harm, began, time.monotonic(), name, what))

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                ask(self._database, "SELECT 1")
            except AssertionError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return
