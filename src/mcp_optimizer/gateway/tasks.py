"""Tasks of servers for clients that ask for them: names that only their caller can use, kept before they are returned.

A server's task gets an id of ours, signed for its caller, and its place is kept in the database that all gateways
share. A task that cannot be kept is awaited in the call instead. `TaskRequests` asks for a task and treats its result
as that of a call. Called by the gateway and by serving; knows no client.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.kept_results import KeptTask
from mcp_optimizer.errors import CatalogError, InvalidRequest
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.metadata import with_origin
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.upstream.tasks import id_of

if TYPE_CHECKING:
    from mcp_optimizer.db.kept_results import TaskRows
    from mcp_optimizer.gateway.gateway import Gateway
    from mcp_optimizer.upstream.pool import UpstreamPool

logger = logging.getLogger(__name__)

_PURPOSE = "task"
_MARK = "task"
_LONGEST = 300
_DAY_MS = 24 * 60 * 60 * 1_000
_LONGEST_LIFE_MS = 7 * _DAY_MS
"""How long a task can be asked for at most, whatever its server says."""

Opened = Callable[[], Awaitable["TaskRows | None"]]
"""Waits until the database is open; None while it cannot be opened."""


class UnknownTask(InvalidRequest):
    """The caller has no such task, or its time is over."""

    def __init__(self) -> None:
        super().__init__("Task not found: this caller has none with that taskId, or its time is over.")


@dataclass(frozen=True)
class TreatedLater:
    """How the result of a call is treated when its task has ended."""

    selection: str = ""
    is_unchanged: bool = False


UNCHANGED = TreatedLater(is_unchanged=True)


class TaskBook:
    """The tasks that clients ask for."""

    def __init__(self, opened: Opened, breaker: Breaker, signatures: Signatures, most: int) -> None:
        """`most`: tasks of one caller at a time."""
        self._opened = opened
        self._breaker = breaker
        self._signatures = signatures
        self._most = most

    async def keep(
        self, created: Mapping[str, Any], server: str, tool: str, caller: Caller, treatment: TreatedLater
    ) -> dict[str, Any] | None:
        """The answer to a call that became a task, under an id of ours; None if the task cannot be kept."""
        life, whose = created.get("ttlMs"), caller.principal.id
        left = min(life, _LONGEST_LIFE_MS) if type(life) is int and life > 0 else _DAY_MS
        kept = KeptTask(
            secrets.token_urlsafe(15),
            whose,
            server,
            id_of(created, server),
            tool,
            treatment.selection,
            treatment.is_unchanged,
            round(time.time() * 1_000) + left,
        )
        try:
            if not await self._breaker.within(partial(self._add, kept)):
                logger.info("A caller has %d tasks already: the next is awaited in its call.", self._most)
                return None
        except CatalogError as error:
            logger.warning("Cannot keep a task: %s. It is awaited in its call.", error)
            return None
        signature = await self._signatures.sign(_PURPOSE, f"{whose}\0{kept.id}")
        return {**created, "taskId": f"{_MARK}.{kept.id}.{signature}"}

    async def find(self, task_id: str, caller: Caller) -> KeptTask:
        """The task that a caller asks for; raises UnknownTask. A forged id, or another caller's, asks no database."""
        parts = task_id.split(".") if len(task_id) <= _LONGEST else []
        if len(parts) != 3 or parts[0] != _MARK:
            raise UnknownTask
        _, own, signature = parts
        whose = caller.principal.id
        if not await self._signatures.is_ours(_PURPOSE, f"{whose}\0{own}", signature):
            raise UnknownTask
        try:
            kept = await self._breaker.within(partial(self._find, own, whose))
        except CatalogError as error:
            raise InvalidRequest(f"The task cannot be looked up now: {error}. Ask again.") from error
        if kept is None:
            raise UnknownTask
        return kept

    async def _add(self, kept: KeptTask) -> bool:
        return await (await self._rows()).add(kept, self._most)

    async def _find(self, own: str, whose: str) -> KeptTask | None:
        return await (await self._rows()).find(own, whose)

    async def _rows(self) -> TaskRows:
        if (rows := await self._opened()) is None:
            raise CatalogError("the database is not open")
        return rows


class TaskRequests:
    """Asks servers for the tasks of callers."""

    def __init__(self, book: TaskBook, gateway: Gateway, pool: UpstreamPool) -> None:
        self._book = book
        self._gateway = gateway
        self._pool = pool

    async def find(self, task_id: str, caller: Caller) -> KeptTask:
        """The task that a caller asks for; raises UnknownTask, also if the caller may not call its tool any more."""
        kept = await self._book.find(task_id, caller)
        view = await self._gateway.seen_by(caller)
        if not self._gateway.permissions.views.permits_server(caller, kept.server):
            raise UnknownTask
        position = view.names.position(kept.server, kept.tool)
        is_known = position is not None and view.tools[position] is not None
        # While its server is away, no tool of it is known.
        if not is_known and view.of_server(kept.server):
            raise UnknownTask
        return kept

    async def ask(self, kept: KeptTask, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The server's answer to a request about a task."""
        return await self._pool.call(kept.server, method, {**params, "taskId": kept.own_id}, caller)

    async def result(self, kept: KeptTask, result: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The result of a task, treated as that of a call: measured, cut and kept."""
        snapshot, results, pages = self._gateway.own(caller), self._gateway.results, self._gateway.pages
        position = snapshot.names.position(kept.server, kept.tool)
        tool = snapshot.tools[position] if position is not None else None
        if tool is None:
            return await results.of_task(Call(kept.server, kept.tool, caller, is_whole=kept.is_unchanged), result)
        details = tool.record.details
        call = Call(
            kept.server,
            kept.tool,
            caller,
            results.projection(kept.selection),
            tool.record.definition_hash,
            annotations=details.annotations or {},
            is_whole=kept.is_unchanged,
            input_schema=details.input_schema,
        )
        done = pages.in_result(tool, await results.of_task(call, result), adds=not kept.is_unchanged)
        return done if kept.is_unchanged else with_origin(done, kept.server, kept.tool, details.annotations)
