"""Turns replies to clients into events, in one place for every kind of reply.

The numbers come from the reply itself, so history and reply cannot disagree. Serving and the library enter an
`AccountedAnswer` before each reply; its event is passed on and the call returns at once. Reads only as much of a result
as counting needs, keeps none of it, and trusts nothing that a server wrote under our names.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from mcp_optimizer.access.audit.recording import outcome_of
from mcp_optimizer.access.audit.trail import SessionLabels
from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.events import Event, EventKind, ToolKey
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.domain.own_tools import CALLING, SCRIPT_META_KEY
from mcp_optimizer.errors import CallRefused, OptimizerError
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.batches import BATCH_META_KEY
from mcp_optimizer.gateway.error_texts import for_model
from mcp_optimizer.gateway.gateway import SCORES_META_KEY, Gateway
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.results.metadata import TOOL_META_KEY
from mcp_optimizer.results.pipeline import RESULT_META_KEY, SELECTION_META_KEY
from mcp_optimizer.runtime.tasks import Afterwards, BackgroundTasks
from mcp_optimizer.token_counter import TokenCounter

_MOST_TOKENS = 10**12

_Default = TypeVar("_Default")


def stated_tokens(part: Mapping[str, Any], name: str, default: _Default) -> int | _Default:
    """A number of tokens from the metadata, if it is plausible: a server may have written it."""
    number = part.get(name)
    return number if isinstance(number, int) and 0 <= number <= _MOST_TOKENS else default


def texts_read(result: Mapping[str, Any] | None, error: OptimizerError | None) -> list[str]:
    """The texts of a reply that a model reads."""
    if result is None:
        return [for_model(error)] if error else []
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]


KINDS = {
    "find_tool": EventKind.FIND,
    "list_tools": EventKind.LIST,
    "read_result": EventKind.READ,
    "run_script": EventKind.SCRIPT,
}
"""The event kinds of our own tools; every other tool is a call."""

Parts = Mapping[str, Mapping[str, Any]]
"""The parts of a reply's metadata by name. A part that is not an object is omitted, because we did not write it."""

_OURS = (
    "tokens",
    "data",
    "performance",
    RESULT_META_KEY,
    SELECTION_META_KEY,
    SCORES_META_KEY,
    SCRIPT_META_KEY,
    BATCH_META_KEY,
    TOOL_META_KEY,
)


class AccountedAnswer:
    """Entered before a reply is made and recorded on exit; kept simple, because every call uses it."""

    __slots__ = ("_asked", "_started", "_take", "at", "caller", "error", "kind", "milliseconds", "result")

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        take: Callable[[AccountedAnswer], None] | None = None,
    ) -> None:
        """`take` is called with this answer on exit."""
        self.kind = KINDS.get(name, EventKind.CALL)
        self.caller = caller
        self.result: Mapping[str, Any] | None = None
        self.error: OptimizerError | None = None
        self._asked = (arguments.get("tool_name"), arguments.get("server_name")) if name in CALLING else (name, None)
        self._take = take
        self._started = time.perf_counter()
        self.at = self.milliseconds = 0.0
        """When the reply was complete, and how long it took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if isinstance(error, OptimizerError):
            self.failed(error)
        if self._take is not None:
            self.at, self.milliseconds = time.time(), (time.perf_counter() - self._started) * 1_000
            self._take(self)

    def reply(self, result: dict[str, Any]) -> dict[str, Any]:
        """Sets the reply that is sent."""
        self.result = result
        return result

    def failed(self, error: OptimizerError) -> None:
        """Sets the error that the reply reports."""
        self.error = error

    def said(self) -> Parts:
        """The parts of the reply's metadata under our names."""
        meta = self.result.get("_meta") if self.result is not None else None
        if not isinstance(meta, dict):
            return {}
        return {name: part for name in _OURS if name in meta and isinstance(part := meta[name], dict)}

    def tool(self, view: Snapshot, said: Parts) -> ToolKey:
        """The tool, if its caller can see it; a name that a model invented is not recorded."""
        name, server = self._asked
        if self.kind is not EventKind.CALL or not isinstance(name, str):
            return ("", "")
        if not server and (listed := view.listed_as(name)) is not None:
            return listed.key
        if origin := said.get(TOOL_META_KEY):
            return (str(origin.get("server", "")), str(origin.get("name", "")))
        if isinstance(self.error, CallRefused):
            return (self.error.server, self.error.tool)
        try:
            tool = resolving.meant(view, name, server if isinstance(server, str) and server else None)
        except OptimizerError:
            return (getattr(self.error, "server", ""), "")
        return tool.key


logger = logging.getLogger(__name__)

_TOGETHER = 0.02
"""Seconds for which replies are collected, to be recorded or counted together."""

_MOST_COUNTED_AT_ONCE = 1_000
"""Replies that may wait in memory to be counted."""

_CANNOT = "Cannot record an event"
_NOTHING: Mapping[str, Any] = {}

ListTokens = Callable[[Sequence[Mapping[str, Any]]], Awaitable[int]]

_Uncounted = tuple[Event, Sequence[str], Sequence[Mapping[str, Any]]]
"""An event, and what to count for it: texts, or the tools of a list."""


class Accounts:
    """Records each reply once."""

    def __init__(
        self,
        gateway: Gateway,
        counter: TokenCounter,
        recorder: Recorder,
        labels: SessionLabels | None = None,
        configuration: str = "",
        afterwards: Afterwards | None = None,
        list_tokens: ListTokens | None = None,
    ) -> None:
        """`list_tokens` counts a list of tools that was sent, or knows its count from before."""
        self._list_tokens = list_tokens
        self._configuration = configuration
        self._gateway = gateway
        self._counter = counter
        self._recorder = recorder
        self._labels = labels or SessionLabels()
        self._listed: tuple[Sequence[Mapping[str, Any]], int] = ((), 0)
        self._uncounted: list[_Uncounted] = []
        self._tasks = BackgroundTasks(logger, "Cannot record events")
        self._is_counting = False
        self._afterwards = afterwards or Afterwards(_TOGETHER)

    def answering(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> AccountedAnswer:
        """Entered around the reply to a tools/call; records the reply when it is complete or has failed."""
        return AccountedAnswer(name, arguments, caller, self._take if self._recorder.is_heard else None)

    def _take(self, answer: AccountedAnswer) -> None:
        """Records a reply once it is sent; a reply that only asks for input is recorded when the call is complete."""
        # The caller gets its reply even if recording fails.
        try:
            if answer.result is None or not is_input_required(answer.result):
                # With the current catalog, which may be replaced before the work is done.
                self._afterwards.do(partial(self._told, answer, self._seen_by(answer.caller)))
        except Exception:
            logger.exception(_CANNOT)

    def _told(self, answer: AccountedAnswer, view: Snapshot) -> None:
        try:
            said = answer.said()
            tokens = stated_tokens(said.get("tokens", _NOTHING), "estimated", None)
            event = self._event(answer, view, said, tokens or 0)
            if tokens is None:
                self._count_beside(event, texts_read(answer.result, answer.error))
            else:
                self._record(event)
        except Exception:
            logger.exception(_CANNOT)

    def loaded(
        self,
        caller: Caller,
        tools: Sequence[Mapping[str, Any]],
        profile: str,
        milliseconds: float,
        counted: int | None = None,
    ) -> None:
        """Records that a client was sent its tools/list. `counted` are the tokens of all its pages, if known."""
        if not self._recorder.is_heard:
            return
        self._afterwards.finish()
        with _never_failing():
            session, client = self._labels.of(caller)
            event = Event(
                at=time.time(),
                kind=EventKind.LOAD,
                session=session,
                client=client,
                tool=profile,
                baseline_tokens=self._seen_by(caller).sent_tokens,
                milliseconds=milliseconds,
                caller=caller.principal.name,
                configuration=self._configuration,
            )
            known, tokens = self._listed
            if counted is not None:
                self._record(event._replace(tokens=counted, full_tokens=counted))
            elif known == tools:
                self._record(event._replace(tokens=tokens, full_tokens=tokens))
            else:
                self._count_beside(event, (), tools)

    async def settled(self) -> None:
        """Waits until every reply is recorded."""
        self._afterwards.finish()
        await self._tasks.settled()

    def _record(self, event: Event) -> None:
        """Records an event that needs no counting, after those being counted, to keep the order of a conversation."""
        if self._is_counting and len(self._uncounted) < _MOST_COUNTED_AT_ONCE:
            self._uncounted.append((event, (), ()))
        else:
            self._recorder.record(event)

    def _count_beside(self, event: Event, texts: Sequence[str], tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Counts in a thread, then records, because the tokenizer may have to be loaded first."""
        if len(self._uncounted) >= _MOST_COUNTED_AT_ONCE:
            self._recorder.drop()
            return
        self._uncounted.append((event, texts, tools))
        if not self._is_counting:
            self._is_counting = True
            self._tasks.spawn(self._count())

    async def _count(self) -> None:
        """Counts many replies in one thread: a thread for each would cost more than the call.

        The caller already has its answer, so an error in the accounts does not affect it.
        """
        try:
            while self._uncounted:
                await asyncio.sleep(_TOGETHER)
                batch, self._uncounted = self._uncounted, []
                for (event, _, tools), tokens in zip(batch, await self._counts(batch), strict=True):
                    if tools:
                        self._listed = (tools, tokens)
                    all_tokens = tokens + event.tokens
                    full_tokens = max(all_tokens, event.full_tokens)
                    self._recorder.record(event._replace(tokens=all_tokens, full_tokens=full_tokens))
        finally:
            self._is_counting = False

    async def _counts(self, batch: Sequence[_Uncounted]) -> list[int]:
        lists = [await self._count_list(tools) if tools else 0 for _, _, tools in batch]
        if not any(texts for _, texts, _ in batch):
            return lists
        # A text that breaks the tokenizer loses only its own count.
        count = self._counter.count_or_zero
        counted = await asyncio.to_thread(lambda: [sum(map(count, texts)) for _, texts, _ in batch])
        return [one + other for one, other in zip(lists, counted, strict=True)]

    async def _count_list(self, tools: Sequence[Mapping[str, Any]]) -> int:
        if self._list_tokens is not None:
            return await self._list_tokens(tools)
        count = self._counter.count_or_zero
        return await asyncio.to_thread(lambda: sum(count(compact(tool)) for tool in tools))

    def _event(self, answer: AccountedAnswer, view: Snapshot, said: Parts, tokens: int) -> Event:
        server, tool = answer.tool(view, said)
        # Only the gateway knows whether this was a stored script: a server can claim anything in its results.
        kind = EventKind.SCRIPT if self._gateway.built_in.has(server) else answer.kind
        data, performance = said.get("data", _NOTHING), said.get("performance", _NOTHING)
        session, client = self._labels.of(answer.caller)
        found: tuple[ToolKey, ...] = ()
        if scores := said.get(SCORES_META_KEY):
            hits = (view.listed_as(name) for name in scores)
            found = tuple(hit.key for hit in hits if hit is not None)
        return Event(
            answer.at,
            kind,
            session,
            client,
            server,
            tool,
            tokens,
            max(tokens, _full_tokens(said, kind)),
            view.sent_tokens,
            float(performance.get("executionTimeMs", answer.milliseconds)),
            bool(performance.get("cachedResult")),
            bool(data.get("truncated") or said.get(RESULT_META_KEY)),
            outcome_of(answer.error, answer.result),
            found,
            answer.caller.principal.name,
            self._configuration,
        )

    def _seen_by(self, caller: Caller) -> Snapshot:
        """The view of the catalog that was made for this caller's answer."""
        return self._gateway.permissions.views.of(self._gateway.snapshot, caller)


@contextmanager
def _never_failing() -> Iterator[None]:
    """The caller gets its reply even if recording fails."""
    try:
        yield
    except Exception:
        logger.exception(_CANNOT)


def _full_tokens(said: Parts, kind: EventKind) -> int:
    """Tokens that the model would have read without limits; for a script, those of its calls' results."""
    if kind is EventKind.SCRIPT:
        return stated_tokens(said.get(SCRIPT_META_KEY, _NOTHING), "innerTokens", 0)
    cut = said.get(BATCH_META_KEY) or said.get(RESULT_META_KEY) or said.get(SELECTION_META_KEY)
    return stated_tokens(cut, "fullTokens", 0) if cut else 0
