"""Finds, lists and calls tools, for any caller and transport.

Called by serving, the library and the command line. Knows no transport and no SDK type; a tool's result is the raw
object that its server sent, plus the metadata from `results`.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pydantic_core

from mcp_optimizer.catalog import CatalogTool, LiveCatalog, Snapshot
from mcp_optimizer.catalog.forms import Detail, Form, ToolForms
from mcp_optimizer.catalog.shapes import LearnedShapes, shape_text
from mcp_optimizer.catalog.use import LearnedUse
from mcp_optimizer.compression.groups import expand
from mcp_optimizer.compression.validation import parts
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.tools import Definition, TokenMetrics
from mcp_optimizer.errors import InvalidArguments, InvalidRequest, quoted
from mcp_optimizer.gateway import resolving
from mcp_optimizer.gateway.arguments import ArgumentCheck, read_arguments
from mcp_optimizer.largejson.text import compact
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.metadata import of_a_tool
from mcp_optimizer.results.pipeline import Call, Results
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.search.engine import Prior
from mcp_optimizer.search.words import terms
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import UpstreamState

TOOL_META_KEY = "mcp-optimizer/tool"
"""The `_meta` key that says which tool of which server was called."""

SCORES_META_KEY = "mcp-optimizer/scores"
"""The `_meta` key for the scores in a find_tool reply; in `_meta` they cost the model nothing."""

_HEADER_KEYWORD = '"x-mcp-header"'
_PAGE = 100
_SUMMARY = 100

_AROUND = 500
"""Tokens of a reply reserved for everything except its tools."""

_LEAST_TOOL = 30
"""Tokens of the smallest tool, which bounds how many tools a reply could hold."""

_LARGE_TOOL = 5_000
_LARGE_TEXT = 100_000
_MANY_PARTS = 5_000
"""Tokens of a definition, or characters or values of parameters, above which reading and checking goes to a thread."""


@dataclass(frozen=True)
class FoundTool:
    """A tool that fits, its score, and the form in which it is returned."""

    tool: CatalogTool
    score: float
    form: Form
    is_general: bool = False
    """It is there because it is for anything: no special tool fits well."""


@dataclass(frozen=True)
class FoundTools:
    """The reply to a search: the tools, the savings, and the servers that could not be searched."""

    tools: tuple[FoundTool, ...]
    token_metrics: TokenMetrics
    missing: tuple[UpstreamState, ...]
    fit: float = 0.0
    """The probability, from 0 to 1, that the first tool answers the request."""
    by_words_only: bool = False
    """The encoder is still loading, so only words were matched."""
    left_out: bool = False
    """Whether more tools fit than the reply has room for."""
    whole_id: str = ""
    """The id under which the only tool is kept complete, if it is too large to be shown."""

    @property
    def general(self) -> list[str]:
        """The tools that were returned because they are for anything."""
        return [found.tool.name for found in self.tools if found.is_general]

    @property
    def abbreviated(self) -> list[str]:
        """The tools that are too large to be shown completely."""
        return [found.tool.name for found in self.tools if found.form.is_abbreviated]


@dataclass(frozen=True)
class ToolListPage:
    """A page of the plain list of tools."""

    tools: tuple[CatalogTool, ...]
    total: int
    next_offset: int | None
    missing: tuple[UpstreamState, ...]


class Gateway:
    """Find, list and call, over the newest snapshot of the catalog."""

    def __init__(
        self,
        catalog: LiveCatalog,
        pool: UpstreamPool,
        forms: ToolForms,
        results: Results,
        find_limit: int,
        limits: Limits = DEFAULT_LIMITS,
        use: LearnedUse | None = None,
        shapes: LearnedShapes | None = None,
    ) -> None:
        self._use = use
        self._shapes = shapes
        self._catalog = catalog
        self._pool = pool
        self._forms = forms
        self.results = results
        self._find_limit = find_limit
        self.limits = limits
        self._check = ArgumentCheck(limits.check_steps)

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot of the catalog."""
        return self._catalog.snapshot

    def find(
        self,
        tool_description: str,
        tool_keywords: str = "",
        limit: int | None = None,
        detail: Detail = Detail.FULL,
    ) -> FoundTools:
        """The few tools that fit a request, with exact savings against all tools of running servers."""
        snapshot = self._catalog.snapshot
        limit = self._find_limit if limit is None else limit
        if limit < 1:
            raise InvalidRequest(f"limit must be at least 1, not {quoted(limit)}.")
        if (length := len(tool_description) + len(tool_keywords)) > (longest := self.limits.query):
            raise InvalidRequest(
                f"The request is too long: {length:,} characters, maximum {longest:,}. Describe one action."
            )
        room = self.limits.reply_tokens - _AROUND
        at_once = room // _LEAST_TOOL
        result = snapshot.index.search(
            tool_description,
            tool_keywords,
            snapshot.allowed,
            min(limit, at_once),
            self._prior(snapshot, f"{tool_description} {tool_keywords}"),
        )
        hits = [(tool, hit) for hit in result.hits for tool in snapshot.at([hit.position])]
        forms = self._forms.reply([tool for tool, _ in hits], detail, room)
        tools = tuple(
            FoundTool(tool, hit.score, form, hit.is_general) for (tool, hit), form in zip(hits, forms, strict=False)
        )
        returned = sum(found.form.tokens for found in tools)
        metrics = TokenMetrics.of(snapshot.baseline_tokens, returned)
        left_out = len(tools) < len(hits) or len(hits) == at_once < limit
        loading = snapshot.encoder_is_loading
        return FoundTools(tools, metrics, tuple(snapshot.missing()), result.fit, loading, left_out)

    def _prior(self, snapshot: Snapshot, request: str) -> Prior | None:
        """What use says of tools, for a request."""
        use = self._use
        if use is None:
            return None
        asked = terms(request)
        return lambda positions: use.prior(asked, [_key(tool) for at in positions if (tool := snapshot.tools[at])])

    async def search(
        self,
        tool_description: str,
        tool_keywords: str = "",
        limit: int | None = None,
        detail: Detail = Detail.FULL,
        caller: Caller = LOCAL,
    ) -> FoundTools:
        """`find` in a thread. If the only tool found is too large for the reply, all of it is kept for read_result."""
        # Embedding the request takes milliseconds that other calls need not wait for.
        found = await asyncio.to_thread(self.find, tool_description, tool_keywords, limit, detail)
        if self._use is not None:
            asked = terms(f"{tool_description} {tool_keywords}")
            self._use.searched(caller.key, asked, [_key(hit.tool) for hit in found.tools])
        if detail is Detail.FULL and len(found.tools) == 1 and found.abbreviated:
            whole = found.tools[0].tool.record.definition.wire_json
            return replace(found, whole_id=await self.results.keep(whole, caller))
        return found

    def list_tools(self, server: str | None = None, offset: int = 0) -> ToolListPage:
        """All tools of running servers, or of one server, page by page."""
        snapshot = self._catalog.snapshot
        if server is not None and server not in snapshot.states:
            raise resolving.unknown_server(snapshot, server)
        tools = snapshot.running if server is None else snapshot.of_server(server)
        if offset < 0:
            raise InvalidRequest(f"offset must not be negative, but is {quoted(offset)}.")
        shown = self._that_fit(tools[offset : offset + _PAGE])
        end = offset + len(shown)
        missing = tuple(state for state in snapshot.missing() if server in (None, state.name))
        return ToolListPage(tuple(shown), len(tools), end if end < len(tools) else None, missing)

    def _that_fit(self, tools: Sequence[CatalogTool]) -> Sequence[CatalogTool]:
        """The first entries that fit a reply, at least one."""
        room = self.limits.reply_tokens - _AROUND
        entries = [compact(entry(tool)) for tool in tools]
        if sum(len(text.encode("utf-8", "surrogatepass")) for text in entries) <= room:
            return tools
        # Counted a few times as a whole and not once for each: every count gives up the interpreter, and where an index
        # is being built beside us, getting it back takes longer than counting.
        if self._cost(entries) <= room:
            return tools
        places = range(1, len(entries) + 1)
        fitting = bisect_right(places, room, key=lambda end: self._cost(entries[:end]))
        return tools[: max(1, fitting)]

    def _cost(self, entries: Sequence[str]) -> int:
        """Tokens, or where they cannot be counted, as many as there can be."""
        text = ",".join(entries)
        try:
            return self.results.count_tokens(text)
        except ValueError:
            return len(text.encode("utf-8", "surrogatepass"))

    async def call(
        self,
        tool_name: str,
        parameters: Any = None,
        server_name: str | None = None,
        caller: Caller = LOCAL,
        select: str = "",
    ) -> dict[str, Any]:
        """Call a tool; returns its result within the limits, with its cost, its tool and its server in `_meta`.

        `select` is a JMESPath expression; only what it selects from the result is returned.
        """
        projection = self.results.projection(select)
        parked = self._pool.parked(caller)
        tool = self.resolve(tool_name, server_name)
        arguments = (
            await asyncio.to_thread(self._understand, tool, parameters)
            if _takes_long(tool, parameters)
            else self._understand(tool, parameters)
        )
        details = tool.record.details
        params = {"name": details.name, "arguments": arguments}
        call = Call(
            tool.server,
            details.name,
            caller,
            details.output_schema,
            projection,
            tool.record.definition_hash,
            arguments,
            details.annotations or {},
            parked.seconds if parked is not None else 0.0,
        )
        result = await self.results.answer(call, lambda: self._pool.call(tool.server, "tools/call", params, caller))
        if self._use is not None and not result.get("isError"):
            self._use.called(caller.key, *_key(tool))
        return _with_origin(result, tool)

    async def pass_on(self, tool_name: str, arguments: Mapping[str, Any] | None, caller: Caller) -> dict[str, Any]:
        """Call a tool by its listed name, with arguments and result unchanged, and add the cost."""
        parked = self._pool.parked(caller)
        snapshot = self._catalog.snapshot
        if (tool := resolving.exact(snapshot, tool_name)) is None:
            raise resolving.unknown_tool(snapshot, tool_name, advice="")
        params = {"name": tool.record.name, **({} if arguments is None else {"arguments": arguments})}
        started = time.perf_counter() - (parked.seconds if parked is not None else 0.0)
        result = await self._pool.call(tool.server, "tools/call", params, caller)
        return await self.results.described(of_a_tool(result), started)

    def definition(self, tool: CatalogTool) -> dict[str, Any]:
        """A tool as its server sent it, under its public name."""
        return {**pydantic_core.from_json(tool.record.definition.wire_json), "name": tool.name}

    def shape(self, tool: CatalogTool) -> str:
        """What a tool returns, in about 35 tokens: by its output schema, else by its results; "" if nobody knows."""
        return shape_text(tool.record.definition, self._shapes)

    def input_schema(self, tool_name: str) -> Mapping[str, Any] | None:
        """The schema of a tool that has parameters sent as headers; None for any other."""
        tool = self._catalog.snapshot.by_name.get(tool_name)
        if tool is None or not _has_header_parameters(tool.record.definition):
            return None
        return tool.record.details.input_schema

    def _understand(self, tool: CatalogTool, parameters: Any) -> dict[str, Any]:
        """The valid arguments in the tool's original shape. On error, shows the schema in the form we send."""
        details = tool.record.details
        arguments = read_arguments(parameters, details)
        for plan in self._forms.plans(tool):
            arguments = expand(arguments, plan)
        try:
            self._check.check(arguments, details, tool.record.definition_hash)
        except InvalidArguments as error:
            # Half of a reply, because the problems need room too.
            [form] = self._forms.reply([tool], Detail.SCHEMA, self.limits.reply_tokens // 2)
            shown = form.definition.input_schema
            raise InvalidArguments(details.name, error.problems, shown, abbreviated=form.is_abbreviated) from None
        return arguments

    def resolve(self, tool_name: str, server_name: str | None = None) -> CatalogTool:
        """The one tool that a name means, or a helpful error."""
        snapshot = self._catalog.snapshot
        if server_name:
            return resolving.on_server(snapshot, tool_name, server_name)
        return resolving.resolve(snapshot, tool_name)


@lru_cache(maxsize=1_024)
def _has_header_parameters(definition: Definition) -> bool:
    return _HEADER_KEYWORD in definition.wire_json


def _takes_long(tool: CatalogTool, parameters: Any) -> bool:
    """Whether reading the parameters may take long; neither the definition nor the parameters are trusted."""
    if tool.tokens > _LARGE_TOOL or not tool.tokens:
        return True
    is_text = isinstance(parameters, str)
    return len(parameters) > _LARGE_TEXT if is_text else parts(parameters, _MANY_PARTS) > _MANY_PARTS


def _with_origin(result: dict[str, Any], tool: CatalogTool) -> dict[str, Any]:
    origin: dict[str, Any] = {"name": tool.record.name, "server": tool.server}
    if tool.record.details.annotations:
        origin["annotations"] = tool.record.details.annotations
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), TOOL_META_KEY: origin}}


def _key(tool: CatalogTool) -> tuple[str, str]:
    return tool.server, tool.record.name


def entry(tool: CatalogTool) -> dict[str, Any]:
    """A tool in the plain list of tools."""
    return {"name": tool.name, "server": tool.server, "description": summary(tool)}


def summary(tool: CatalogTool) -> str:
    """The beginning of a tool's description, for lists: at most one sentence."""
    return _summary(tool.record.definition)


@lru_cache(maxsize=4096)
def _summary(definition: Definition) -> str:
    """Kept, because a list shows a hundred, and each definition would have to be unpacked for it."""
    details = definition.parsed()
    description = details.description or details.title or ""
    text = " ".join(description.split())
    end = text.find(". ")
    text = text[: end + 1] if end > 0 else text
    text = text if len(text) <= _SUMMARY else text[: _SUMMARY - 1].rstrip() + "…"
    # Who picks a tool from the list must not miss that it is deprecated.
    warning = " ".join(deprecation(description).split())
    return text if not warning or warning in text else f"{warning} {text}"
