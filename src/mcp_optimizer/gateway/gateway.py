"""Finds, lists and calls tools, for any caller and transport.

Called by serving, the library and the command line. Knows no transport and no SDK type; a tool's result is the raw
object that its server sent, plus the metadata from `results`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeVar

import pydantic_core

from mcp_optimizer.access.audit.recording import recording
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.access.policy.policy import Policy
from mcp_optimizer.catalog import CatalogTool, LiveCatalog, Snapshot
from mcp_optimizer.catalog.learned_shapes import LearnedShapes, shape_text
from mcp_optimizer.catalog.learned_use import LearnedHoldings, LearnedUse
from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.compression.groups import as_grouped, expand, misused
from mcp_optimizer.domain.caller import LOCAL, Caller, CallRecord, Risk
from mcp_optimizer.domain.extensions import is_task
from mcp_optimizer.domain.json_schema import optional_in
from mcp_optimizer.errors import (
    AmbiguousTool,
    CallInterrupted,
    InvalidArguments,
    InvalidRequest,
    NotKnownYet,
    RequestError,
    ServerUnavailable,
    StillStarting,
    UnknownTool,
    UpstreamError,
    quoted,
)
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.app_pages import AppPages
from mcp_optimizer.gateway.arguments import (
    ArgumentCheck,
    are_large,
    foreign_to,
    has_header_parameters,
    read_arguments,
    refers_to_results,
    takes_long,
    with_results,
    without,
)
from mcp_optimizer.gateway.batches import Batches
from mcp_optimizer.gateway.caller_threads import CallerThreads
from mcp_optimizer.gateway.finding import Finder, Query
from mcp_optimizer.gateway.found_tools import FoundTools, ToolListPage, page_of, that_fit
from mcp_optimizer.gateway.permissions import Agreed, Permissions, Views
from mcp_optimizer.gateway.python_text import Stubs
from mcp_optimizer.gateway.reply_text import ShownByConversation, ShownInConversation
from mcp_optimizer.gateway.servers import Arrivals, BuiltInServers, StartingServers, is_coming
from mcp_optimizer.gateway.skills import Skills
from mcp_optimizer.gateway.tasks import UNCHANGED, TaskBook, TreatedLater
from mcp_optimizer.largejson.compact_json import written
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.metadata import of_a_tool, with_origin
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.search.words import terms
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.questions import Parked

SCORES_META_KEY = "mcp-optimizer/scores"
"""The `_meta` key for the scores in a find_tool reply, where they cost the model nothing."""

T = TypeVar("T")

Resolve = Callable[[Snapshot], Awaitable[CatalogTool]]
"""Finds the tool that a caller's name refers to."""

_SEARCHES = 3
_LARGE_CALLS = 2
"""Searches, and calls with large arguments, that run at the same time."""

_AROUND = 500
"""Tokens of a list reserved for everything except its tools."""


class Gateway:
    """Finds, lists and calls tools, using the newest snapshot of the catalog."""

    def __init__(
        self,
        catalog: LiveCatalog,
        pool: UpstreamPool,
        forms: ToolForms,
        results: Results,
        find_limit: int,
        limits: Limits = DEFAULT_LIMITS,
        use: LearnedUse | None = None,
        find_tokens: int = 364,
        shapes: LearnedShapes | None = None,
        permissions: Permissions | None = None,
        trail: AuditTrail | None = None,
        stubs: Stubs | None = None,
        built_in: BuiltInServers | None = None,
        tasks: TaskBook | None = None,
        arrivals: Arrivals | None = None,
        *,
        holdings: LearnedHoldings | None = None,
        says_savings: bool = True,
    ) -> None:
        self._trail = trail
        self._tasks = tasks
        self._arrivals = arrivals
        self.built_in = built_in or BuiltInServers(pool)
        self._use = use
        self._shapes = shapes
        self._conversations = ShownByConversation()
        self._catalog = catalog
        self.permissions = permissions or Permissions(Views(Policy()))
        self._starting = StartingServers(catalog, pool.wake, own=self.permissions.views.own)
        self._pool = pool
        self._forms = forms
        self.results = results
        stubs = stubs and stubs.but_not_of(self.built_in.has)
        counting = (forms, results.count_or_most, find_limit, find_tokens, limits)
        self._finder = Finder(*counting, use, self.shape, stubs, holdings, says_savings=says_savings)
        self.pages = AppPages(lambda: catalog.snapshot, forms)
        self._turns = CallerThreads("searches", limits.waiting_searches, _SEARCHES)
        self._checks = CallerThreads("large calls", limits.requests, _LARGE_CALLS)
        self.limits = limits
        self._check = ArgumentCheck(limits.check_steps)
        self.batches = Batches(self, pool, trail)
        self.skills = Skills(lambda: catalog.snapshot, lambda: self.pages.schemes, pool, self.permissions)

    def use_limits_of_find(self, tools: int, tokens: int, *, says_savings: bool = True) -> None:
        self._finder.use(tools, tokens, says_savings=says_savings)

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot of the catalog."""
        return self._catalog.snapshot

    async def arrived(self, caller: Caller) -> None:
        """A caller makes a request: its own servers start."""
        if self._arrivals is not None:
            await self._arrivals.of(caller.principal)

    async def taken_in(self) -> None:
        """Wait until the tools that servers have listed so far can be called."""
        await self._catalog.taken_in()

    async def seen_by(self, caller: Caller) -> Snapshot:
        """The current snapshot as a caller sees it: only the tools that it may call."""
        await self.arrived(caller)
        return await self.permissions.views.ready(self._catalog.snapshot, caller)

    def find(
        self,
        tool_description: str,
        tool_keywords: str = "",
        limit: int | None = None,
        detail: Detail = Detail.FULL,
        caller: Caller = LOCAL,
    ) -> FoundTools:
        """The few tools that fit a request, with exact savings against all tools of running servers. Runs immediately
        and is not counted: for single-user programs; see `search`.
        """
        query = self._finder.query(tool_description, tool_keywords, limit, detail, caller.principal.id)
        return self._find(self._catalog.snapshot, caller, query)

    async def search(
        self,
        tool_description: str,
        tool_keywords: str = "",
        limit: int | None = None,
        detail: Detail = Detail.FULL,
        caller: Caller = LOCAL,
        *,
        conversation: str = "",
        is_on_demand: bool = False,
    ) -> FoundTools:
        """Runs `find` when it is the caller's turn, counted as one call for each action. If the only tool found is too
        large for the reply, its complete definition is kept for read_result.

        `conversation`: the conversation's id, within which nothing needs to be shown twice; "" if unknown.
        `is_on_demand`: whether the client loads definitions on demand itself, so that no savings are claimed.
        """
        asked = (tool_description, tool_keywords, limit, detail, caller.principal.id)
        query = self._finder.query(*asked, is_on_demand=is_on_demand)
        self.permissions.take_turn(caller, query.searches)
        seen = self._conversations.of(conversation) if conversation else None
        await self._starting.wait(partial(self.seen_by, caller), partial(self._has_likely, query, caller))
        found = await self.in_turn(caller, partial(self._find, self._catalog.snapshot, caller, query, seen))
        if self._use is not None:
            self._use.searched(caller.conversation, terms(query.text), [hit.tool.key for hit in found.tools])
        if detail is Detail.FULL and len(found.tools) == 1 and found.abbreviated:
            whole = found.tools[0].tool.record.definition.readable_json
            found = replace(found, whole_id=await self.results.keep(whole, caller), text="")
            return await asyncio.to_thread(self._finder.counted, found)
        return found

    async def in_turn(self, caller: Caller, search: Callable[[], T]) -> T:
        """Run a search in a thread when it is the caller's turn: embedding a request takes milliseconds, for which
        other callers should not wait.
        """
        return await self._turns.run(caller.principal.id, search)

    def _find(
        self, snapshot: Snapshot, caller: Caller, query: Query, seen: ShownInConversation | None = None
    ) -> FoundTools:
        return self._finder.find(self.permissions.views.of(snapshot, caller), query, seen)

    def list_tools(self, server: str | None = None, offset: int = 0, caller: Caller = LOCAL) -> ToolListPage:
        """All tools of running servers that the caller may call, or of one server, page by page; skills come last."""
        snapshot = self.permissions.views.of(self._catalog.snapshot, caller)
        if server is not None and server not in snapshot.states:
            raise resolving.unknown_server(snapshot, server)
        if offset < 0:
            raise InvalidRequest(f"offset must not be negative, but is {quoted(offset)}.")
        room = self.limits.reply_tokens - _AROUND
        return page_of(snapshot, server, offset, partial(that_fit, room=room, count=self.results.count_or_most))

    async def call(
        self,
        tool_name: str,
        parameters: Any = None,
        server_name: str | None = None,
        caller: Caller = LOCAL,
        select: str = "",
        most: Risk = Risk.DESTRUCTIVE,
        whole: bool = False,
        added: Collection[str] = (),
        by_page: bool = False,
        may_defer: bool = False,
        agreed: Agreed | None = None,
    ) -> dict[str, Any]:
        """Call a tool; returns its result within the limits, with its cost, tool and server in `_meta`.

        `select`: a JMESPath expression; only the part of the result that it selects is returned. `most`: the highest
        risk class that may be called. `whole`: a program wants the entire result, so nothing is truncated. `added`:
        arguments that the client adds to every call, dropped unless the tool knows them. `by_page`: a page may make
        the call, not only a model. `may_defer`: the client may get a task instead of a result, if it wants tasks.
        `agreed`: what a person agreed to for several calls.
        """
        with recording(self._trail, caller, "tools/call") as record:
            projection = self.results.projection(select) if select else None
            caller = caller if may_defer else caller._replace(wants_tasks=False)
            parked, caller = self._begin(caller, record)
            try:
                tool = await self.meant(tool_name, server_name, caller)
            except AmbiguousTool as error:
                tool = await self._of_page(error, tool_name, caller, by_page=by_page)
            self._refuse_unseen(tool, tool_name, by_page=by_page)
            (server, name), digest = tool.key, tool.record.definition_hash
            if is_long := takes_long(tool.tokens, parameters):
                parameters = await self._off_loop(caller, partial(written, parameters))
            record.about(server, name, digest, parameters)
            self.permissions.refuse_worse(tool, most, caller)
            arguments = await self.understood(tool, parameters, caller, added, is_long=is_long)
            record.about(server, name, digest, arguments)
            details = tool.record.details
            params = {"name": details.name, "arguments": arguments}
            call = Call(
                server,
                details.name,
                caller,
                projection,
                digest,
                arguments,
                details.annotations or {},
                parked.seconds if parked is not None else 0.0,
                whole,
                details.input_schema,
            )
            caller = await self.permissions.obtain(tool, arguments, caller, lambda: self._catalog.snapshot, agreed)
            later = TreatedLater(select, is_unchanged=whole)
            ask = (
                partial(self._asked, tool, params, caller, later)
                if tool.record.skill is None
                else partial(self.skills.read, tool, arguments, caller)
            )
            result = await self.built_in.answered(self.results, call, caller, ask)
            if self._use is not None and not result.get("isError") and not self.own(caller).is_own(server):
                self._use.called(caller.conversation, server, name, optional_in(details.input_schema, arguments))
            return record.result(with_origin(self.pages.in_result(tool, result), server, name, details.annotations))

    async def pass_on(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None,
        caller: Caller,
        added: Collection[str] = (),
        *,
        by_page: bool = False,
    ) -> dict[str, Any]:
        """Call a tool by its listed name, with arguments (except `added` ones) and result unchanged; adds the cost."""
        with recording(self._trail, caller, "tools/call") as record:
            parked, caller = self._begin(caller, record)
            exact = partial(self.permissions.exact, tool_name=tool_name, caller=caller)
            try:
                tool = await self._resolved(exact, tool_name, None, caller)
            except UnknownTool as error:
                tool = await self._of_page(error, tool_name, caller, by_page=by_page)
            self._refuse_unseen(tool, tool_name, by_page=by_page)
            if tool.record.skill is not None:
                raise UnknownTool(tool_name, (), "It is a skill: its files are resources.")
            server, name = tool.key
            if added and arguments is not None:
                arguments = without(foreign_to(tool.record.definition, added), arguments)
            if are_large(arguments):
                arguments = await self._off_loop(caller, partial(written, arguments))
            record.about(server, name, tool.record.definition_hash, arguments)
            params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
            started = time.perf_counter() - (parked.seconds if parked is not None else 0.0)
            caller = await self.permissions.obtain(tool, arguments, caller, lambda: self._catalog.snapshot)
            if self.built_in.has(server):
                return record.result(await self.built_in.call(server, name, arguments or {}, caller))
            result = await self._called(tool, params, caller, UNCHANGED)
            result = self.pages.in_result(tool, result, adds=False)
            schema = tool.record.details.input_schema
            call = Call(server, name, arguments=arguments or {}, is_whole=True, input_schema=schema)
            return record.result(await self.results.described(of_a_tool(result), started, call))

    async def _of_page(self, error: RequestError, tool_name: str, caller: Caller, *, by_page: bool) -> CatalogTool:
        """The tool that a page calls by its own name, which several servers have: that of the page's server. Raises
        `error` if no page makes the call, or it is unclear which.
        """
        server = self.pages.meant(await self.seen_by(caller), tool_name, caller) if by_page else None
        if server is None:
            raise error
        return await self.permissions.resolve(self._catalog.snapshot, tool_name, server, caller)

    def _refuse_unseen(self, tool: CatalogTool, tool_name: str, *, by_page: bool) -> None:
        """Raises UnknownTool for a tool that only pages may call, unless a page may make this call."""
        if tool.record.is_for_apps_only and not by_page:
            raise UnknownTool(tool_name, (), "Only the pages of its server can call it.")

    async def _has_likely(self, query: Query, caller: Caller, view: Snapshot) -> bool:
        """Whether a search finds a tool that is likely to be the one that is meant."""
        looks = partial(self._finder.is_likely_to_find, view, query)
        return not view.encoder_is_loading and await self.in_turn(caller, looks)

    async def _asked(
        self, tool: CatalogTool, params: dict[str, Any], caller: Caller, treatment: TreatedLater
    ) -> dict[str, Any]:
        """The result of a call. A call that only reads is repeated once if its server died during it."""
        try:
            return await self._called(tool, params, caller, treatment)
        except CallInterrupted:
            if (tool.record.details.annotations or {}).get("readOnlyHint") is not True:
                raise
            if not is_coming(self.own(caller), tool.server) or not await self._is_up_again(tool, caller):
                raise
        return await self._called(tool, params, caller, treatment)

    async def _called(
        self, tool: CatalogTool, params: dict[str, Any], caller: Caller, treatment: TreatedLater
    ) -> dict[str, Any]:
        """The server's result, or, for a client that wants tasks, the task that it answers with."""
        result = await self._pool.call(tool.record.server, "tools/call", params, caller)
        if not is_task(result):
            return result
        book, (server, name) = self._tasks, tool.key
        kept = await book.keep(result, server, name, caller, treatment) if book is not None else None
        return kept or await self._pool.task_result(server, params, result, caller._replace(wants_tasks=False))

    def own(self, caller: Caller) -> Snapshot:
        """The current snapshot with the caller's own servers."""
        return self.permissions.views.own(self._catalog.snapshot, caller)

    async def _is_up_again(self, tool: CatalogTool, caller: Caller) -> bool:
        """Whether a tool's server runs again and lists the same definition of the tool."""
        with suppress(StillStarting):
            await self._starting.until_up(tool.server, caller)
        snapshot = self.own(caller)
        digests = {one.record.definition_hash for one in snapshot.of_server(tool.server) if one.key == tool.key}
        return tool.record.definition_hash in digests and tool.server not in snapshot.expected

    async def _resolved(self, resolve: Resolve, tool_name: str, server_name: str | None, caller: Caller) -> CatalogTool:
        """The tool that a name means, on a running server. Waits while its server is starting; never denies a tool that
        may still appear.
        """
        await self.arrived(caller)
        snapshot = self._catalog.snapshot
        try:
            tool = await resolve(snapshot)
        except (UnknownTool, ServerUnavailable):
            if not await self._came(tool_name, server_name, caller):
                raise
            tool = await self._known_by_now(resolve, tool_name, caller)
            snapshot = self._catalog.snapshot
        if tool.record.server not in self.permissions.views.own(snapshot, caller).expected:
            return tool
        # Meanwhile, what the call needs besides its server.
        self.results.begin()
        await self._starting.until_up(tool.server, caller)
        # Resolved again: the server may list something else now.
        return await resolve(self._catalog.snapshot)

    async def _came(self, tool_name: str, server_name: str | None, caller: Caller) -> bool:
        """Wait for the server that a name means, or else those with unknown tools; returns whether to look again."""
        view = await self.seen_by(caller)
        coming = [name for name in resolving.bearers(view, tool_name, server_name) if is_coming(view, name)]
        if coming:
            await self._starting.until_known(coming, caller)
            return True

        async def is_there(view: Snapshot) -> bool:
            with suppress(RequestError, UpstreamError):
                return bool(resolving.meant(view, tool_name, server_name))
            return False

        return await self._starting.wait(partial(self.seen_by, caller), is_there) or view.is_starting

    async def _known_by_now(self, resolve: Resolve, tool_name: str, caller: Caller) -> CatalogTool:
        try:
            return await resolve(self._catalog.snapshot)
        except UnknownTool as error:
            view = await self.seen_by(caller)
            if (starting := [state.name for state in view.missing() if not state.is_down]) and not error.reason:
                raise NotKnownYet(tool_name, error.nearest, starting) from error
            raise

    def _begin(self, caller: Caller, record: CallRecord) -> tuple[Parked | None, Caller]:
        """The parked call that this one continues, if any, and the caller, against whose rate a new call counts."""
        parked = self._pool.parked(caller)
        if parked is None:
            self.permissions.take_turn(caller)
        return parked, caller.noted(record, is_continuing=parked is not None)

    def definition(self, tool: CatalogTool) -> dict[str, Any]:
        """A tool as its server sent it, under its public name."""
        sent = {**pydantic_core.from_json(tool.record.definition.wire_json), "name": tool.name}
        return sent if tool.record.app is None else self.pages.in_definition(tool, sent)

    def shape(self, tool: CatalogTool, principal: str = LOCAL.principal.id) -> str:
        """What a tool returns to a principal, in about 35 tokens, as declared or else learned; "" if not known."""
        return shape_text(tool.server, tool.record.definition, self._shapes, principal)

    def input_schema(self, tool_name: str) -> Mapping[str, Any] | None:
        """The schema of a tool whose parameters are also sent as headers; None for any other tool."""
        tool = self._catalog.snapshot.listed_as(tool_name)
        if tool is None or not has_header_parameters(tool.record.definition):
            return None
        return tool.record.details.input_schema

    async def _off_loop(self, caller: Caller, work: Callable[[], T]) -> T:
        """Run work on large arguments in a thread, when it is the caller's turn."""
        return await self._checks.run(caller.principal.id, work)

    async def meant(self, tool_name: str, server_name: str | None, caller: Caller) -> CatalogTool:
        """The tool that a name means for a caller, on a running server; waits while that server starts."""
        resolve = partial(self.permissions.resolve, tool_name=tool_name, server_name=server_name, caller=caller)
        return await self._resolved(resolve, tool_name, server_name, caller)

    async def understood(
        self, tool: CatalogTool, parameters: Any, caller: Caller, added: Collection[str], *, is_long: bool
    ) -> dict[str, Any]:
        """The valid arguments that a model's parameters mean; raises InvalidArguments. `is_long`: use a thread."""
        if refers_to_results(parameters):
            most = self.limits.result_argument_characters
            parameters = await with_results(parameters, tool.record.details, self.results, caller, most)
            is_long = is_long or takes_long(tool.tokens, parameters)
        if is_long:
            return await self._off_loop(caller, lambda: written(self._understand(tool, parameters, added)))
        if not self._forms.is_at_hand(tool):
            await asyncio.to_thread(self._forms.plans, tool)
        return self._understand(tool, parameters, added)

    def _understand(self, tool: CatalogTool, parameters: Any, added: Collection[str]) -> dict[str, Any]:
        """The valid arguments in the tool's original shape. An error shows the schema in the form that clients get."""
        details = tool.record.details
        given = arguments = read_arguments(parameters, details, foreign_to(tool.record.definition, added))
        plans = [plan for plan in self._forms.plans(tool) if plan.groups]
        wrong = [problem for plan in plans for problem in misused(given, plan, details.input_schema)]
        for plan in plans:
            arguments = expand(arguments, plan)
        try:
            if wrong:
                raise InvalidArguments(details.name, list(dict.fromkeys(wrong)), details.input_schema)
            self._check.check(arguments, details, tool.record.definition.definition_hash)
        except InvalidArguments as error:
            problems = [reduce(lambda text, plan: as_grouped(text, given, plan), plans, one) for one in error.problems]
            # Half of a reply, because the problems need room too.
            [form] = self._forms.reply([tool], Detail.SCHEMA, self.limits.reply_tokens // 2)
            shown = form.definition.input_schema
            raise InvalidArguments(details.name, problems, shown, abbreviated=form.is_abbreviated) from None
        return arguments

    def resolve(self, tool_name: str, server_name: str | None = None) -> CatalogTool:
        """The one tool that a name means; raises a helpful error otherwise."""
        return resolving.meant(self._catalog.snapshot, tool_name, server_name)
