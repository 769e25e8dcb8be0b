"""The values that a search or a list returns: tools in their forms, entries, savings and notes. Frozen.

The packages above use `FoundTools`; programs get it as a `FindToolResponse`. Also writes the notes and call errors
about tools that wait for approval.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pydantic_core
from pydantic import BaseModel

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import Form
from mcp_optimizer.domain.pins import HeldTool, ToolChange
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus, TokenMetrics
from mcp_optimizer.errors import ToolHeld, listed, quoted
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation
from mcp_optimizer.upstream.state import UpstreamState

_MOST_SERVERS_NAMED = 3
_PAGE = 100
"""Maximum tools on a page of the plain list."""
_PLAIN = regex(r"[\w.:/-]{1,128}", re.ASCII)
"""Names that are safe to show in a command: a server chooses its tools' names, and a person may paste the command."""

_WHY = {
    ToolChange.CHANGED: "it changed since it was approved",
    ToolChange.NEW: "it was added after the tools of its server were approved",
    ToolChange.SERVER: "the command or URL of its server changed since it was approved",
    ToolChange.UNKNOWN: "its server's approvals cannot be read from the database; the gateway tries again",
}


def held_error(tool: HeldTool) -> ToolHeld:
    """The error for a held tool: why it cannot be called, and what a person can do about it."""
    server = shlex.quote(tool.server) if tool.server.isprintable() else "SERVER"
    name = tool.name if _PLAIN.fullmatch(tool.name) else "TOOL"
    date = f" ({datetime.fromtimestamp(tool.approved_at_ms / 1000, UTC).date().isoformat()})"
    why = _WHY[tool.change] + ("" if tool.change is ToolChange.UNKNOWN else date)
    is_server = tool.change is ToolChange.SERVER
    see = f"mcp-optimizer trust diff {server}" + ("" if is_server else f" {name}")
    approve = f"mcp-optimizer trust approve {server} {'--all' if is_server else name} --shown VERSION"
    return ToolHeld(tool.server, tool.name, why, see, approve)


def waiting_note(held: Iterable[HeldTool]) -> str:
    """How many tools of which servers wait for approval; empty if there are none."""
    counts = Counter(tool.server for tool in held)
    said = [f"{count:,} of {quoted(server)}" for server, count in counts.most_common()]
    return f"Tools that wait for the user's approval: {listed(said, _MOST_SERVERS_NAMED)}." if said else ""


_SUMMARY = 100


def entry(tool: CatalogTool) -> dict[str, Any]:
    """A tool in the plain list of tools."""
    return {"name": tool.name, "server": tool.server, "description": summary(tool)}


def that_fit(tools: Sequence[CatalogTool], room: int, count: Callable[[str], int]) -> Sequence[CatalogTool]:
    """The first tools whose entries fit in so many tokens, at least one."""
    entries = [compact(entry(tool)) for tool in tools]
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in entries) <= room:
        return tools

    # Counts a few joined texts, not each entry: every count releases the interpreter, and while another thread builds
    # an index, getting it back takes longer than counting.
    def cost(end: int) -> int:
        return count(",".join(entries[:end]))

    if cost(len(entries)) <= room:
        return tools
    return tools[: max(1, bisect_right(range(1, len(entries) + 1), room, key=cost))]


def summary(tool: CatalogTool) -> str:
    """The start of a tool's description, for lists: at most one sentence."""
    return _summary(tool.record.definition)


@lru_cache(maxsize=4096)
def _summary(definition: Definition) -> str:
    """Cached, because a list shows a hundred tools, and each definition would have to be unpacked for it."""
    details = definition.parsed()
    description = details.description or details.title or ""
    text = " ".join(description.split())
    end = text.find(". ")
    text = text[: end + 1] if end > 0 else text
    text = text if len(text) <= _SUMMARY else text[: _SUMMARY - 1].rstrip() + "…"
    # A reader who picks a tool from the list must see that it is deprecated.
    warning = " ".join(deprecation(description).split())
    return text if not warning or warning in text else f"{warning} {text}"


_NOTHING = "No tool fits. Ask for one action in other words, or see list_tools."
_NOTHING_YET = "No tool found yet."
_NEAREST = "No tool fits well. These are the nearest; if none does it, ask in other words, or see list_tools."
_AGAIN = "Search again in some seconds."
_MOST_NAMED = 5
"""Maximum number of tools that a note names."""


@dataclass(frozen=True)
class FoundTool:
    """A tool that fits, with its score and the form in which it is returned."""

    tool: CatalogTool
    score: float
    form: Form
    is_general: bool = False
    """Whether it is listed as a general-purpose tool, because no special tool fits well."""
    is_named: bool = False
    """Whether the request is nothing but its name."""


@dataclass(frozen=True)
class FoundPart:
    """One action of a request that asks for several, and the tools that fit it, best first."""

    request: str
    tools: tuple[FoundTool, ...]
    has_more: bool = False
    """Whether more tools fit than the reply has room for."""
    fits: bool = True
    """Whether the tools fit; otherwise they are only the nearest."""


@dataclass(frozen=True)
class FoundTools:
    """The reply to a search: the tools, the savings, and the servers that could not be searched."""

    tools: tuple[FoundTool, ...]
    token_metrics: TokenMetrics
    missing: tuple[UpstreamState, ...]
    fit: float = 0.0
    """The probability, from 0 to 1, that the first tool answers the request."""
    fits: bool = True
    """Whether the tools fit; otherwise they are only the nearest."""
    by_words_only: bool = False
    """Whether only words were matched, because the encoder is still loading."""
    left_out: bool = False
    """Whether more tools fit than the reply has room for."""
    whole_id: str = ""
    """The id under which the complete definition of the only tool is kept, if it is too large to be shown."""
    counterparts: tuple[CatalogTool, ...] = ()
    """Tools of other servers that the request may mean as well; a reply only names them."""
    further: tuple[CatalogTool, ...] = ()
    """The tools that follow in the ranking; a reply only names them."""
    parts: tuple[FoundPart, ...] = ()
    """The actions that the request asks for, if it asks for several."""
    not_searched: str = ""
    """The actions beyond the number that one search handles."""
    held: tuple[HeldTool, ...] = ()
    """Tools that wait for approval and were not searched."""
    text: str = ""
    """The text a model reads: prose with signatures, or the response as JSON."""
    reply_tokens: int = 0
    """The cost of that text."""
    says_savings: bool = True
    """Whether the text says what was saved."""
    starting: tuple[str, ...] = ()
    """The servers of these tools that are not running yet."""
    sent: TokenMetrics | None = None
    """The metrics for the definitions that clients send, which are smaller than complete ones. None: the client sends
    only definitions that its model looked for, so none were saved.
    """

    @property
    def is_incomplete(self) -> bool:
        """Whether servers are still starting, so that neither the tools nor the baseline are complete."""
        return bool(self.starting) or any(not state.is_down for state in self.missing)

    @property
    def savings_line(self) -> str:
        """The savings in at most 15 tokens; empty if they are not wanted. Commas would cost a token each."""
        if not self.says_savings:
            return ""
        if (sent := self.sent) is not None:
            said = f"Saved {sent.tokens_saved} of {sent.baseline_tokens} tokens"
        else:
            said = f"{self.token_metrics.returned_tokens} of {self.token_metrics.baseline_tokens} tokens of tools"
        return f"{said} so far" if self.is_incomplete else said

    @property
    def general(self) -> list[str]:
        """The names of the returned general-purpose tools."""
        return [found.tool.name for found in self.tools if found.is_general]

    @property
    def abbreviated(self) -> list[str]:
        """The names of the tools that are too large to be shown completely."""
        return [found.tool.name for found in self.tools if found.form.is_abbreviated]

    @property
    def note(self) -> str:
        """What a reader should know about the reply; usually empty."""
        return " ".join(filter(None, (self.mark, self.remarks)))

    @property
    def mark(self) -> str:
        """What a reader should know before it reads of the tools: that they are only the nearest."""
        return _NEAREST if self.tools and not self.fits and not self.parts else ""

    @property
    def remarks(self) -> str:
        """What else it should know."""
        notes = [] if self.tools else [_NOTHING_YET if self.is_incomplete else _NOTHING]
        if self.general and not self.parts:
            said = "No special tool fits well; general-purpose" if self.fits else "General-purpose"
            notes.append(f"{said}: {listed(self.general, _MOST_NAMED)}.")
        if self.by_words_only:
            notes.append("Searched by words only: the encoder is still loading.")
        if self.abbreviated:
            notes.append(self._how_to_read_all())
        if self.not_searched:
            notes.append(f'Too many actions for one search; not searched: "{self.not_searched}".')
        if self.left_out:
            notes.append("More tools fit than a reply has room for: ask for one action at a time.")
        if self.starting:
            notes.append(f"Still starting: {listed(self.starting)}. A call waits for it.")
        if self.missing:
            notes.append(not_running(self.missing))
        if self.held:
            notes.append(waiting_note(self.held))
        if self.is_incomplete and not self.tools:
            notes.append(_AGAIN)
        return " ".join(notes)

    def _how_to_read_all(self) -> str:
        if self.whole_id:
            return f'Abbreviated; all of it: read_result(result_id="{self.whole_id}").'
        names = listed(self.abbreviated, _MOST_NAMED)
        return f'Abbreviated: {names}. Search for one alone, with limit=1 and detail="full", to read all of it.'


@dataclass(frozen=True)
class ToolListPage:
    """One page of the plain list of tools."""

    tools: tuple[CatalogTool, ...]
    total: int
    next_offset: int | None
    missing: tuple[UpstreamState, ...]
    held: tuple[HeldTool, ...] = ()

    @property
    def note(self) -> str:
        """What the page does not cover."""
        missing = not_running(self.missing) if self.missing else ""
        return " ".join(filter(None, (missing, waiting_note(self.held))))


def page_of(
    snapshot: Snapshot,
    server: str | None,
    offset: int,
    fitting: Callable[[Sequence[CatalogTool]], Sequence[CatalogTool]],
) -> ToolListPage:
    """A page of all tools of a snapshot, or of one server; skills come last. `fitting`: those that a reply has room
    for.
    """
    tools = snapshot.running if server is None else snapshot.of_server(server)
    tools = (*tools, *(skill for skill in snapshot.skills if server in (None, skill.server)))
    shown = tuple(fitting(tools[offset : offset + _PAGE]))
    end = offset + len(shown)
    missing = tuple(state for state in snapshot.missing() if server in (None, state.name))
    held = tuple(tool for tool in snapshot.held.values() if server in (None, tool.server))
    return ToolListPage(shown, len(tools), end if end < len(tools) else None, missing, held)


def likelihood(score: float) -> str:
    """Formats a score for people, the same way everywhere. An estimate is never shown as certain or impossible."""
    return f"{min(max(round(score * 100), 1), 99)} %"


def not_running(states: tuple[UpstreamState, ...]) -> str:
    """Names the servers that a reply does not cover."""
    starting = [state.name for state in states if not state.is_down]
    offered = [state for state in states if state.is_down and _is_offered(state)]
    failed = [f"{state.name} ({_how_down(state)})" for state in states if state.is_down and not _is_offered(state)]
    notes = [f"Still starting, not searched yet: {listed(starting)}."] if starting else []
    notes += [f"Not included, because not running: {listed(failed)}."] if failed else []
    notes += [f"{state.name}: {state.reason}." for state in offered]
    return " ".join(notes)


def _is_offered(state: UpstreamState) -> bool:
    """Whether its tools are included, and a call asks for the login that its caller lacks."""
    return state.status is ServerStatus.LOGIN_NEEDED and state.spec.auth.lists_before_login


def _how_down(state: UpstreamState) -> str:
    """The status, with what a person can do if a login is needed; an unprintable server name becomes NAME."""
    if state.spec.is_of_each_caller and state.reason:
        return state.reason
    if state.status is not ServerStatus.LOGIN_NEEDED:
        return state.status
    server = shlex.quote(state.name) if state.name.isprintable() else "NAME"
    return f"{state.status}: a person can run `mcp-optimizer login {server}`"


class FindToolResponse(BaseModel):
    """The reply of find_tool: the tools, best first, each with its `server` and `score`.

    `reply_tokens` is the cost of the text that a model reads; `note` says what a reader should know, if anything.
    """

    tools: list[McpTool]
    token_metrics: TokenMetrics
    reply_tokens: int | None = None
    note: str | None = None


def find_response(found: FoundTools) -> FindToolResponse:
    tools = [hit.form.definition.model_copy().mark_found(hit.tool.server, hit.score) for hit in found.tools]
    cost = found.reply_tokens if found.text else None
    return FindToolResponse(tools=tools, token_metrics=found.token_metrics, reply_tokens=cost, note=found.note or None)


def json_text(found: FoundTools) -> str:
    """The response as JSON text for a model, compact, because a model pays for whitespace."""
    unwanted = {"reply_tokens"} if found.says_savings else {"reply_tokens", "token_metrics"}
    answer = find_response(found).model_dump(mode="json", exclude_none=True, exclude=unwanted)
    return pydantic_core.to_json(answer).decode("utf-8")
