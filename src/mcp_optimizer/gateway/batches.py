"""Makes one call of a tool for each element of a list of arguments, and answers with one result.

Each is a gateway call of its own, so rules, pins, rates, deadlines, the cache and the audit apply to it as to any call;
only a person is asked once for all. Calls that read run side by side; calls that may change something run in order, and
end at the first that cannot be made, or whose end is unknown. Called by the gateway's own tools; knows no transport.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pydantic_core

from mcp_optimizer.access.audit.recording import recording
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.domain.caller import Caller, ClientLink, Risk
from mcp_optimizer.errors import (
    CallInterrupted,
    CallLost,
    CallRefused,
    CallTimeout,
    InvalidRequest,
    OptimizerError,
    RequestError,
    ServerBusy,
    ServerUnavailable,
    TooManyCalls,
)
from mcp_optimizer.gateway.arguments import listed_in_result, refers_to_results, takes_long
from mcp_optimizer.gateway.error_texts import for_model
from mcp_optimizer.gateway.nested_calls import NestedLink, Progress, answered, inner
from mcp_optimizer.gateway.permissions import Agreed
from mcp_optimizer.largejson.raw import wire_size
from mcp_optimizer.results.batch_results import Made, OneOfMany
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.metadata import with_meta, with_origin
from mcp_optimizer.results.result_texts import Reading
from mcp_optimizer.results.tool_limits import COMPLETE
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.questions import Request

if TYPE_CHECKING:
    from mcp_optimizer.gateway.gateway import Gateway

BATCH_META_KEY = "mcp-optimizer/calls"
"""The `_meta` key for the calls that one reply stands for: how many of each outcome."""

_NOT_SENT = (RequestError, ServerUnavailable, ServerBusy)
_NO_ANSWER = (CallTimeout, CallLost, CallInterrupted)
_ENDS_ALL = (*_NO_ANSWER, ServerUnavailable, ServerBusy, TooManyCalls, CallRefused)
"""Errors that have nothing to do with one call's arguments. After one of them, no further change is begun."""

_ROOM_FOR_ERRORS = 4
"""The part of a reply that all errors together may take, as a divisor."""


def as_list(parameters: Any) -> list[Any] | None:
    """The list of arguments that a model means, which may be written as text; None if it means one call."""
    if isinstance(parameters, str) and parameters.lstrip()[:1] == "[":
        with suppress(ValueError):
            parameters = pydantic_core.from_json(parameters)
    return parameters if isinstance(parameters, list) else None


@dataclass(frozen=True)
class Batch:
    """A tool and the arguments of each of its calls."""

    tool_name: str
    items: Sequence[Any]
    server_name: str | None = None
    select: str = ""
    most: Risk = Risk.DESTRUCTIVE
    added: Collection[str] = ()

    @property
    def request(self) -> Request:
        """What a client must repeat when it answers a question."""
        asked = {"name": self.tool_name, "server": self.server_name, "arguments": self.items, "select": self.select}
        return Request("", "tools/call", {**asked, "most": self.most})


class OneQuestionAtATime(NestedLink):
    """The client of a batch, whose user is asked one question after the other; counts how long that took."""

    def __init__(self, link: ClientLink, key: str) -> None:
        super().__init__(link, key)
        self._turn = asyncio.Lock()
        self.seconds_asked = 0.0

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            began = time.monotonic()
            try:
                return await super().ask(method, params)
            finally:
                self.seconds_asked += time.monotonic() - began


class Batches:
    """Makes the calls of batches."""

    def __init__(self, gateway: Gateway, pool: UpstreamPool, trail: AuditTrail | None) -> None:
        self._gateway = gateway
        self._pool = pool
        self._trail = trail

    async def listed(self, parameters: Any, caller: Caller) -> list[Any] | None:
        """The list of arguments that a model gives, or names as a kept result; None if it means one call."""
        if (items := as_list(parameters)) is not None or not refers_to_results(parameters):
            return items
        most = self._gateway.limits.result_argument_characters
        return await listed_in_result(parameters, self._gateway.results, caller, most)

    async def call(self, batch: Batch, caller: Caller) -> dict[str, Any]:
        """Make all calls; returns their results as one."""
        # Compiled again for the results; an expression that is wrong is refused before any call.
        self._gateway.results.projection(batch.select)
        count, most = len(batch.items), self._gateway.limits.batch_calls
        if not count:
            raise InvalidRequest("parameters is an empty list, so nothing was called. Give the arguments of each call.")
        if count > most:
            raise InvalidRequest(
                f"parameters lists {count:,} calls, and one request makes at most {most:,}. Nothing was called: give "
                f"{most:,} at a time."
            )
        key = caller.link.key if caller.link is not None else ""
        return await self._pool.answer_in_parts(batch.request, caller, partial(self._answer, batch, key))

    async def _answer(self, batch: Batch, key: str, caller: Caller) -> dict[str, Any]:
        started = time.perf_counter()
        link = None if caller.link is None else OneQuestionAtATime(caller.link, key)
        nested = inner(caller, link)
        tool, agreed = await self._permitted(batch, nested)
        run = _Run(self._gateway, batch, tool, agreed, nested, Progress(caller, len(batch.items)))
        calls = await run.all(link)
        if (refused := run.same_refusal()) is not None:
            raise refused
        details = tool.record.details
        call = Call(
            tool.server,
            tool.record.name,
            caller,
            self._gateway.results.projection(batch.select),
            annotations=details.annotations or {},
            extent=COMPLETE,
        )
        result = await self._gateway.results.together(calls, call, started)
        counts = {made.value: sum(one.made is made for one in calls) for made in Made}
        account = {"outcomes": {name: count for name, count in counts.items() if count}, "fullTokens": run.tokens}
        result = with_meta(result, BATCH_META_KEY, account)
        return with_origin(result, tool.server, tool.record.name, details.annotations)

    async def _permitted(self, batch: Batch, caller: Caller) -> tuple[CatalogTool, Agreed | None]:
        """The tool, and what a person agreed to. A refusal of all is recorded once; else each call is recorded."""
        with recording(self._trail, caller, "tools/call") as record:
            noted = caller.noted(record, is_continuing=False)
            tool = await self._gateway.meant(batch.tool_name, batch.server_name, noted)
            record.about(tool.server, tool.record.name, tool.record.definition_hash, {"calls": batch.items})
            self._gateway.permissions.refuse_worse(tool, batch.most, noted)
            agreed = None
            if self._gateway.permissions.may_be_asked(tool, noted):
                understood = [one async for one in self._understood(batch, tool, noted)]
                latest = partial(getattr, self._gateway, "snapshot")
                agreed = await self._gateway.permissions.agree_to_all(tool, understood, noted, latest)
            record.leave_out()
            return tool, agreed

    async def _understood(self, batch: Batch, tool: CatalogTool, caller: Caller) -> AsyncIterator[dict[str, Any]]:
        """The arguments of those calls that will be made, for the person to read."""
        for item in batch.items:
            with suppress(OptimizerError):
                is_long = takes_long(tool.tokens, item)
                yield await self._gateway.understood(tool, item, caller, batch.added, is_long=is_long)


class _Run:
    """The calls of one batch while they are made."""

    def __init__(
        self,
        gateway: Gateway,
        batch: Batch,
        tool: CatalogTool,
        agreed: Agreed | None,
        caller: Caller,
        progress: Callable[[str], Awaitable[None]],
    ) -> None:
        self._gateway = gateway
        self._batch = batch
        self._tool = tool
        self._agreed = agreed
        self._caller = caller
        self._progress = progress
        self._reads = gateway.permissions.views.decide(caller, tool).risk.risk is Risk.READ
        self._room = gateway.limits.batch_result_bytes
        self._errors: dict[int, OptimizerError] = {}
        self._ended_by: int | None = None
        self._said: dict[str, int] = {}
        self.tokens = 0
        """Tokens of all results, as separate calls would have returned them."""

    async def all(self, link: OneQuestionAtATime | None) -> list[OneOfMany]:
        """Make the calls; returns them in the order of their arguments."""
        made: list[OneOfMany | None] = [None] * len(self._batch.items)
        waiting = iter(range(len(made)))
        began, limits = time.monotonic(), self._gateway.limits

        async def work() -> None:
            for at in waiting:
                asked = link.seconds_asked if link is not None else 0.0
                if time.monotonic() - began - asked > limits.batch_seconds:
                    problem = f"not begun within {limits.batch_seconds:g} s; call again with the rest"
                    made[at] = OneOfMany(Made.NOT_MADE, problem=problem)
                elif self._ended_by is not None:
                    made[at] = OneOfMany(Made.NOT_MADE, problem=f"not begun after [{self._ended_by}]")
                else:
                    made[at] = await self._one(at)

        await asyncio.gather(*(work() for _ in range(min(len(made), limits.batch_parallel if self._reads else 1))))
        return [one for one in made if one is not None]

    def same_refusal(self) -> OptimizerError | None:
        """The error with which all calls were refused, if it was one and the same."""
        first = self._errors.get(0)
        if len(self._errors) < len(self._batch.items) or not isinstance(first, _NOT_SENT):
            return None
        return first if len({(type(error), str(error)) for error in self._errors.values()}) == 1 else None

    async def _one(self, at: int) -> OneOfMany:
        try:
            result = await answered(partial(self._once, self._batch.items[at]), self._caller)
        except OptimizerError as error:
            return self._failed(at, error)
        finally:
            await self._progress(self._tool.record.name)
        self.tokens += _tokens(result)
        self._room -= wire_size(result)
        if result.get("isError"):
            problem = "\n".join(map(str, Reading(result).texts))[: self._gateway.limits.error_text]
            return OneOfMany(Made.FAILED, problem=self._once_only(at, problem))
        if self._room < 0:
            most = self._gateway.limits.batch_result_bytes
            return OneOfMany(Made.DONE, problem=f"done; its result is left out: together more than {most:,} bytes")
        return OneOfMany(Made.DONE, result)

    async def _once(self, item: Any, caller: Caller) -> dict[str, Any]:
        batch, (server, name) = self._batch, self._tool.key
        return await self._gateway.call(
            name, item, server, caller, most=batch.most, whole=True, added=batch.added, agreed=self._agreed
        )

    def _failed(self, at: int, error: OptimizerError) -> OneOfMany:
        self._errors[at] = error
        if not self._reads and isinstance(error, _ENDS_ALL):
            self._ended_by = at
        made = Made.NOT_MADE if isinstance(error, _NOT_SENT) else Made.FAILED
        most = self._gateway.limits.reply_tokens // _ROOM_FOR_ERRORS
        # The schema is said once: every call has the same.
        problem = for_model(error, most) if len(self._errors) == 1 else str(error)[:most]
        return OneOfMany(
            Made.UNSURE if isinstance(error, _NO_ANSWER) else made, problem=self._once_only(at, problem, str(error))
        )

    def _once_only(self, at: int, problem: str, about: str = "") -> str:
        """The problem, or the place of the first call that has the same."""
        first = self._said.setdefault(about or problem, at)
        return problem if first == at else f"as [{first}]"


def _tokens(result: Mapping[str, Any]) -> int:
    """The cost in tokens that the gateway has written into a result."""
    tokens = result.get("_meta", {}).get("tokens", {}).get("estimated", 0)
    return tokens if isinstance(tokens, int) else 0
