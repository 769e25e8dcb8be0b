"""Finds the tools for a request and formats them for programs and for models. Called by the gateway.

A request for several actions is searched part by part. The tools found decide whether it is one: a request that is only
worded like several actions stays a single request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from mcp_optimizer.access.policy.risk import risk_by_definition
from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.learned_use import LearnedHoldings, LearnedUse
from mcp_optimizer.catalog.tool_forms import Detail, Form, ToolForms
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Risk
from mcp_optimizer.domain.json_schema import optional_in, properties_of
from mcp_optimizer.domain.tools import TokenMetrics
from mcp_optimizer.errors import InvalidRequest, quoted
from mcp_optimizer.gateway.found_tools import FoundPart, FoundTool, FoundTools, json_text
from mcp_optimizer.gateway.python_text import PythonSources, Stubs, python_text, stub_forms
from mcp_optimizer.gateway.reply_text import LISTING_PLACES, ShownInConversation, TextSources, about_server, reply_text
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import SeveralActions, several
from mcp_optimizer.search.engine import Hit, Prior
from mcp_optimizer.search.languages import in_english
from mcp_optimizer.search.tool_texts import keywords_read, request_read
from mcp_optimizer.search.words import name_key, terms

_AROUND = 500
"""Tokens of a reply reserved for everything except its tools."""

_LEAST_TOOL = 30
"""Tokens of the smallest tool, which bounds how many tools a reply could hold."""

_OF_A_PART = 4
"""Tools considered for each of several actions."""

_LIKELY = 0.4
"""How likely each part's tool must be for a request that does not separate its actions to count as several."""


_OBVIOUS = 0.7
"""How likely a part's tool must be for the part to be searched on its own."""

_BETTER = 0.5
"""How likely a tool of the other parts' servers must be to be preferred."""

_CERTAIN = 0.9
"""How likely a tool must be for a request worded like several actions to count as one."""


@dataclass(frozen=True)
class Query:
    """A search as requested: the text, extra keywords, how many tools, in which form, and by which principal. Created
    by `Finder.query`.
    """

    tool_description: str
    tool_keywords: str = ""
    limit: int | None = None
    detail: Detail = Detail.FULL
    principal: str = LOCAL_PRINCIPAL.id
    is_on_demand: bool = False
    """Whether the client loads definitions on demand itself, in which case the search saves none."""

    @property
    def text(self) -> str:
        return f"{self.tool_description} {self.tool_keywords}"

    @cached_property
    def several(self) -> SeveralActions | None:
        """The actions to search one by one; None if there is only one. A limit below the number of actions returns the
        best tools for the whole request instead.
        """
        asked = several(self.tool_description)
        return None if asked is None or (self.limit is not None and len(asked.parts) > self.limit) else asked

    @property
    def searches(self) -> int:
        """How many searches the query costs: one for each action."""
        return len(self.several.parts) if self.several is not None else 1

    def names(self, tool: CatalogTool) -> bool:
        """Whether the request consists only of tool names, this one among them: "create card" is an ordinary request,
        `create_card` is a name.
        """
        own = {name_key(tool.name), name_key(tool.record.name), name_key(f"{tool.server} {tool.record.name}")}
        asked = [word for word in _BETWEEN.split(self.tool_description) if word and word.lower() not in _FILLERS]
        if len(asked) > 1 and not any(map(_JOINED.search, asked)):
            return False
        are_names = all(_JOINED.search(word) or name_key(word) in own for word in asked)
        return (are_names and any(name_key(word) in own for word in asked)) or name_key(self.tool_description) in own


_WORDS = regex(r"[A-Za-z]+")
_LONGEST = 240
"""Characters of a request that are examined for what it does."""

_BETWEEN = regex(r"[\s,;'\"`]+")
_JOINED = regex(r"[^\W_][_-]+[^\W_]|[a-z][A-Z]")
_FILLERS = frozenset("the a tool tools of and all show describe parameters schema signature details please".split())
"""Words around a name that do not ask for anything else."""

_AS_A_SCRIPT = "All in one request: run_script; the same search with detail='python' shows how."

_Hits = list[tuple[CatalogTool, Hit]]


@dataclass(frozen=True)
class _Searched:
    """What one search of the index found: the hits, tools of other servers that may be meant, and those that follow."""

    hits: _Hits
    counterparts: list[CatalogTool]
    further: list[CatalogTool]


class Finder:
    """Finds tools in a snapshot of the catalog. `find_tokens` is the target cost of a reply for a model."""

    def __init__(
        self,
        forms: ToolForms,
        count: Callable[[str], int],
        find_limit: int,
        find_tokens: int,
        limits: Limits,
        use: LearnedUse | None = None,
        shape: Callable[[CatalogTool, str], str] = lambda _tool, _principal: "",
        stubs: Stubs | None = None,
        holdings: LearnedHoldings | None = None,
        *,
        says_savings: bool = True,
    ) -> None:
        self._forms = forms
        self._count = count
        self._find_limit = find_limit
        self._find_tokens = find_tokens
        self._limits = limits
        self._use = use
        self._shape = shape
        self._stubs = stubs
        self._holdings = holdings
        self._says_savings = says_savings

    def use(self, find_limit: int, find_tokens: int, *, says_savings: bool) -> None:
        self._find_limit = find_limit
        self._find_tokens = find_tokens
        self._says_savings = says_savings

    def query(
        self,
        description: str,
        keywords: str,
        limit: int | None,
        detail: Detail,
        principal: str = LOCAL_PRINCIPAL.id,
        *,
        is_on_demand: bool = False,
    ) -> Query:
        """Validates a request and builds its query; raises InvalidRequest if it cannot be searched for."""
        if detail is Detail.PYTHON and self._stubs is None:
            raise InvalidRequest('detail="python" is for scripts, which are off here. Leave detail out.')
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit must be at least 1, not {quoted(limit)}.")
        length = len(description) + len(keywords)
        if length > (longest := self._limits.query):
            raise InvalidRequest(
                f"The request is too long: {length:,} characters, maximum {longest:,}. Describe one action."
            )
        return Query(request_read(description), keywords_read(keywords), limit, detail, principal, is_on_demand)

    def find(self, snapshot: Snapshot, query: Query, seen: ShownInConversation | None = None) -> FoundTools:
        """The few tools that fit a request, with exact savings against all tools of running servers, and the reply's
        text with its cost.

        `seen`: what this conversation was already shown; the text does not repeat it.
        """
        return self.counted(self._found(snapshot, query, seen))

    def _found(self, snapshot: Snapshot, query: Query, seen: ShownInConversation | None) -> FoundTools:
        limit = self._most(query)
        room = self._limits.reply_tokens - _AROUND
        at_once = room // _LEAST_TOOL
        searched = self._searched(snapshot, query.tool_description, query.tool_keywords, min(limit, at_once))
        hits = searched.hits
        asked = query.several
        parts, meant = self._parts(snapshot, query, asked, hits) if asked is not None else ([], [])
        if parts:
            most = max(limit, _OF_A_PART * len(parts)) if query.limit is None else limit
            hits = _together(parts, hits)[: min(most, at_once)]
        forms = self._put(snapshot, [tool for tool, _ in hits], query, room)
        tools = tuple(
            FoundTool(tool, hit.score, form, hit.is_general, hit.is_named and query.names(tool))
            for (tool, hit), form in zip(hits, forms, strict=False)
        )
        found = FoundTools(
            tools,
            _metrics(snapshot, tools),
            tuple(snapshot.missing()),
            hits[0][1].score if hits else 0.0,
            _fit(hits),
            snapshot.encoder_is_loading,
            len(tools) < len(hits) or len(hits) == at_once < limit,
            counterparts=tuple(meant if parts else searched.counterparts),
            further=() if parts else _worth_naming(tools, searched.further),
            parts=_in_parts(parts, tools),
            not_searched=asked.rest if asked is not None and parts else "",
            held=tuple(snapshot.held.values()),
            says_savings=self._says_savings,
            starting=_starting(snapshot, tools),
            sent=None if query.is_on_demand else _sent_metrics(snapshot, tools),
        )
        return replace(found, text=self._text(found, snapshot, query, seen))

    def is_likely_to_find(self, snapshot: Snapshot, query: Query) -> bool:
        """Whether the best tool for a request is likely to be the one that is meant."""
        limit = self._most(query)
        found = self._searched(snapshot, query.tool_description, query.tool_keywords, min(limit, _OF_A_PART))
        return _is_likely(found.hits)

    def counted(self, found: FoundTools) -> FoundTools:
        """Adds the text that a model reads, whatever the detail, and its cost."""
        text = found.text or json_text(found)
        return replace(found, text=text, reply_tokens=self._count(text))

    def _most(self, query: Query) -> int:
        return self._find_limit if query.limit is None else query.limit

    def _searched(self, snapshot: Snapshot, description: str, keywords: str, limit: int) -> _Searched:
        prior = self._prior(snapshot, f"{description} {keywords}")
        result = snapshot.index.search(description, keywords, snapshot.allowed, limit, prior)
        hits = [
            (tool, hit)
            for hit in result.hits
            for tool in snapshot.at([hit.position])
            if not (hit.is_general and _does_more(tool, description))
        ]
        return _Searched(hits, snapshot.at(result.counterparts), snapshot.at(result.further))

    def _prior(self, snapshot: Snapshot, request: str) -> Prior | None:
        """The ranking prior for a request, from recorded use of the tools."""
        use = self._use
        if use is None:
            return None
        asked = terms(request)
        return lambda positions: use.prior(asked, [tool.key for at in positions if (tool := snapshot.tools[at])])

    def _parts(
        self, snapshot: Snapshot, query: Query, asked: SeveralActions, whole: _Hits
    ) -> tuple[list[tuple[str, _Hits]], list[CatalogTool]]:
        """The parts of a request for several actions, each with its tools, and the tools of other servers that may be
        meant; none if it is one request.
        """
        keywords = query.tool_keywords
        searched = [self._searched(snapshot, part, keywords, _OF_A_PART) for part in asked.parts]
        parts = [(part, one.hits) for part, one in zip(asked.parts, searched, strict=True)]
        clear = [hits[0][0].server if _is_likely(hits) and _says_enough(part) else "" for part, hits in parts]
        parts = [
            (part, self._among(snapshot, part, hits, keywords, {*clear[:at], *clear[at + 1 :]} - {""}))
            for at, (part, hits) in enumerate(parts)
        ]
        if not _are_several(asked, parts, whole):
            return [], []
        # A server that another action needs as well is meant, and so is one that another action led to.
        needed = Counter(hits[0][0].server for _, hits in parts if hits)
        open_to_others = [
            one
            for one, (_, hits) in zip(searched, parts, strict=True)
            if hits and hits is one.hits and needed[hits[0][0].server] == 1
        ]
        return parts, list({tool.key: tool for one in open_to_others for tool in one.counterparts}.values())

    def _among(self, snapshot: Snapshot, part: str, hits: _Hits, keywords: str, servers: set[str]) -> _Hits:
        """The tools for a part that says little by itself: those of the other parts' servers, if they fit."""
        best = hits[0][1].score if hits else 0.0
        if not servers or best >= (_OBVIOUS if _says_enough(part) else _CERTAIN):
            return hits
        named = self._searched(snapshot, part, f"{keywords} {' '.join(sorted(servers))}", _OF_A_PART)
        own = [(tool, hit) for tool, hit in named.hits if tool.server in servers and not hit.is_general]
        least = max(_BETTER, best + 0.05) if _says_enough(part) else _BETTER
        return own if own and own[0][1].score >= least else hits

    def _put(self, snapshot: Snapshot, tools: Sequence[CatalogTool], query: Query, room: int) -> list[Form]:
        """The tools in the requested form, as programs read them."""
        if self._stubs is None or query.detail is not Detail.PYTHON:
            return self._forms.reply(tools, query.detail, room)
        written = [(tool, self._stub(snapshot, tool, query)) for tool in tools]
        return stub_forms(written, self._forms, self._count, room)

    def _stub(self, snapshot: Snapshot, tool: CatalogTool, query: Query) -> str:
        assert self._stubs is not None
        return self._stubs.stub(snapshot, tool, self._shape(tool, query.principal))

    def _python(
        self, found: FoundTools, snapshot: Snapshot, query: Query, seen: ShownInConversation | None, budget: int
    ) -> str:
        assert self._stubs is not None
        spelling = partial(self._stubs.spelling, snapshot)
        sources = PythonSources(spelling, lambda tool: self._stub(snapshot, tool, query), self._count)
        return python_text(found, sources, budget, seen)

    def _text(self, found: FoundTools, snapshot: Snapshot, query: Query, seen: ShownInConversation | None) -> str:
        """The prose for a model; empty when the model reads JSON."""
        ending = found.savings_line
        # The last line counts towards the reply's cost.
        budget = self._find_tokens - (self._count(ending) + 1 if ending else 0)
        if query.detail is Detail.PYTHON and self._stubs is not None:
            text = self._python(found, snapshot, query, seen, budget)
        elif query.detail is Detail.SIGNATURE:
            text = self._signatures(found, snapshot, query, seen, budget)
        else:
            return ""
        return f"{text}\n{ending}" if ending else text

    def _about(self, snapshot: Snapshot, principal: str, server: str) -> str:
        held = self._holdings.told(principal, server) if self._holdings is not None else ""
        return "; ".join(filter(None, [_about(snapshot, server), held]))

    def _usual(self, tool: CatalogTool) -> Sequence[str]:
        if self._use is None:
            return ()
        schema = tool.record.details.input_schema
        return self._use.usual(tool.server, tool.record.name, optional_in(schema, properties_of(schema)))

    def _signatures(
        self, found: FoundTools, snapshot: Snapshot, query: Query, seen: ShownInConversation | None, budget: int
    ) -> str:
        room = self._limits.reply_tokens - _AROUND
        sources = TextSources(
            self._forms,
            self._count,
            room,
            lambda tool: self._shape(tool, query.principal),
            partial(self._about, snapshot, query.principal),
            self._usual,
        )
        text = reply_text(found, sources, budget, frozenset(terms(query.text)), seen)
        return f"{text}\n{_AS_A_SCRIPT}" if self._stubs is not None and found.parts else text


def _starting(snapshot: Snapshot, tools: Sequence[FoundTool]) -> tuple[str, ...]:
    """The servers of these tools that are not running yet."""
    if not snapshot.expected:
        return ()
    starting = snapshot.starting
    return tuple(dict.fromkeys(one.tool.server for one in tools if one.tool.server in starting))


def _metrics(snapshot: Snapshot, tools: Sequence[FoundTool]) -> TokenMetrics:
    """Compares the stored token counts of the returned tools with those of all tools that were searched."""
    returned = sum(found.tool.tokens for found in tools)
    return _saved(snapshot, tools, snapshot.baseline_tokens, returned, lambda tool: tool.tokens)


def _sent_metrics(snapshot: Snapshot, tools: Sequence[FoundTool]) -> TokenMetrics:
    """The same for the definitions that clients send."""
    returned = sum(found.tool.record.sent_tokens for found in tools)
    return _saved(snapshot, tools, snapshot.sent_tokens, returned, lambda tool: tool.record.sent_tokens)


def _saved(
    snapshot: Snapshot, tools: Sequence[FoundTool], known: int, returned: int, cost: Callable[[CatalogTool], int]
) -> TokenMetrics:
    """Computes the savings. A search that finds nothing while servers start claims none: the wanted tool may still
    arrive. Tools of servers that are not running yet save nothing, so only the returned ones are counted.
    """
    if not tools and snapshot.is_starting:
        return TokenMetrics.of(0, returned)
    kept = {found.tool.key for found in tools}
    awaited = (tool for server in snapshot.starting for tool in snapshot.of_server(server) if tool.key not in kept)
    return TokenMetrics.of(known - sum(map(cost, awaited)), returned)


def _about(snapshot: Snapshot, server: str) -> str:
    positions = (snapshot.names.position(server, name) for name in LISTING_PLACES)
    tools = (snapshot.tools[at] for at in positions if at is not None)
    return about_server(snapshot.states[server], next((tool.name for tool in tools if tool is not None), ""))


def _are_several(asked: SeveralActions, parts: Sequence[tuple[str, _Hits]], whole: _Hits) -> bool:
    """Whether the parts have different, likely tools, and no single tool covers the whole request."""
    best = [hits[0] for _, hits in parts if hits]
    if len({tool.key for tool, _ in best}) < 2:
        return False
    is_one = bool(whole) and whole[0][1].score >= _CERTAIN
    return asked.is_certain or (not is_one and all(_is_likely(hits) for _, hits in parts))


def _does_more(tool: CatalogTool, request: str) -> bool:
    """Whether a tool may change something although the request only reads; asked about general-purpose tools."""
    asked = risk_by_definition("_".join(_WORDS.findall(in_english(request)[:_LONGEST])), None).risk
    return asked is Risk.READ and not asked.covers(
        risk_by_definition(tool.record.name, tool.record.details.annotations).risk
    )


def _says_enough(part: str) -> bool:
    """Whether a part says more than its verb: "commit it" can be about anything."""
    return len(terms(part)) > 1


def _is_likely(hits: _Hits) -> bool:
    return _fit(hits) and hits[0][1].score >= _LIKELY


def _fit(hits: _Hits) -> bool:
    return bool(hits) and not any(hit.is_only_near for _, hit in hits)


def _together(parts: Sequence[tuple[str, _Hits]], whole: _Hits) -> _Hits:
    """The best tool for the whole request, then the best of each part, then the next ones; each tool once."""
    rows = [hits[place] for place in range(_OF_A_PART) for _, hits in parts if place < len(hits)]
    found: dict[tuple[str, str], tuple[CatalogTool, Hit]] = {}
    for tool, hit in [*whole[:1], *rows, *whole]:
        found.setdefault(tool.key, (tool, hit))
    return list(found.values())


def _in_parts(parts: Sequence[tuple[str, _Hits]], tools: Sequence[FoundTool]) -> tuple[FoundPart, ...]:
    by_key = {found.tool.key: found for found in tools}
    return tuple(
        FoundPart(
            part,
            tuple(_of_part(by_key[tool.key], part, hit) for tool, hit in hits if tool.key in by_key),
            any(tool.key not in by_key for tool, _ in hits),
            _fit(hits),
        )
        for part, hits in parts
    )


def _of_part(found: FoundTool, part: str, hit: Hit) -> FoundTool:
    return replace(found, score=hit.score, is_named=hit.is_named and Query(part).names(found.tool))


def _worth_naming(tools: Sequence[FoundTool], further: Sequence[CatalogTool]) -> tuple[CatalogTool, ...]:
    """Further tools of the servers that the search found, which a reader may need next."""
    servers = {found.tool.server for found in tools}
    return tuple(tool for tool in further if tool.server in servers)
