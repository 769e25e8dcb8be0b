"""The page of pins, from values to HTML: what servers' tools were, what changed, and buttons to approve it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from mcp_optimizer.dashboard.fields import ago, button, confirmed, hidden, named, word
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.parts import frame, pager, section, state_mark, table, tool_href
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.runtime.terminal_text import counted
from mcp_optimizer.trust.overview import APPROVED, ServerOverview, ToolOverview

PATH = "/trust"
PAGE_OF_TOOLS = 50
_MOST_SERVERS = 500
_SHORT = 20
_KINDS = {"+": "added", "-": "removed", "@": "place"}
_EFFECTS = {
    TrustMode.BLOCK: "neither found nor called until approved",
    TrustMode.WARN: "used all the same",
    TrustMode.OFF: "not compared any more",
}


@dataclass(frozen=True)
class Change:
    """Something that waits for approval: a tool, or the command or URL of a server."""

    title: str
    state: str
    since_ms: int
    lines: Sequence[str]
    version: str = ""
    """Stands for exactly what is shown. Empty: it cannot be approved alone."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class WaitingServer:
    """What of one server waits for approval."""

    name: str
    mode: TrustMode | None
    changes: Sequence[Change]
    """As many as one page shows."""
    waiting: int
    """How many there are."""
    version: str
    """Stands for all of them."""


@dataclass(frozen=True)
class TrustPage:
    """All servers, or one of them."""

    version: str
    visitor: Visitor
    now_ms: int
    servers: Sequence[ServerOverview]
    waiting: Sequence[WaitingServer]
    only: str = ""
    """The one server that is shown with all of its tools."""
    number: int = 1
    problem: str = ""


def trust_page(values: TrustPage) -> str:
    title = f"Tools of {named(values.only)}" if values.only else "Trust"
    lead = "The first listing of a server counts as approved. What changed since then, or is new, is shown here."
    return frame(
        title,
        el("h1", title),
        el("p", [lead, " ", el("a", "All servers", href=PATH)] if values.only else lead, class_="lead"),
        el("p", values.problem, class_="bad", role="alert") if values.problem else None,
        [_waiting(one, values) for one in values.waiting],
        _tools(values) if values.only else _servers(values),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def server_trust_href(server: str) -> str:
    return f"{PATH}?{urlencode({'server': server}, errors='replace')}"


def _action(server: str, what: str) -> str:
    return f"{PATH}/{quote(server, safe='', errors='replace')}/{what}"


def _waiting(one: WaitingServer, values: TrustPage) -> Html:
    effect = _EFFECTS.get(one.mode, "") if one.mode is not None else "of a server that is not in the server file"
    note = f"{counted(one.waiting, 'change')}; {effect}"
    rest = one.waiting - len(one.changes)
    elsewhere = "on other pages" if values.only else el("a", "of this server", href=server_trust_href(one.name))
    more = el("p", f"and {rest:,} more ", elsewhere, class_="note") if rest > 0 else None
    approve_all = None
    if values.visitor.can_manage:
        label = f"Approve all {one.waiting:,}" if one.waiting > 1 else "Approve"
        about = f"everything of {named(one.name)}"
        buttons = [
            button(label, about, _action(one.name, "approve"), hidden("version", one.version), is_main=True),
            # All of its tools come with a button of their own.
            None if values.only else _reset(one.name),
        ]
        approve_all = el("div", buttons, class_="actions")
    return section(
        named(one.name),
        [_change(change, one, values) for change in one.changes],
        more,
        approve_all,
        note=note,
        css="waits",
    )


def _change(change: Change, server: WaitingServer, values: TrustPage) -> Html:
    # Alone, it is what the button for all approves.
    is_separate = values.visitor.can_manage and bool(change.version) and server.waiting > 1
    approve = (
        button("Approve", named(change.title), _action(server.name, "approve"), hidden("version", change.version))
        if is_separate
        else None
    )
    heading = el(
        "div",
        el("h3", named(change.title), " ", state_mark(change.state)),
        el("p", ago(change.since_ms, values.now_ms), class_="note"),
        approve,
        class_="title",
    )
    notes = [el("p", el("span", note, class_="mark bad"), class_="note") for note in change.notes]
    return el("article", heading, notes, el("pre", [_line(line) for line in change.lines], class_="diff", tabindex="0"))


def _line(line: str) -> Html:
    kind = _KINDS.get(line[:1])
    return el("span", f"{line}\n", class_=kind)


def _reset(server: str) -> Html:
    question = "Forget the approvals. The server's next list counts as approved, without a review."
    return confirmed("Reset", named(server), question, _action(server, "reset"))


def _servers(values: TrustPage) -> Html:
    rows = [
        (
            el("a", named(server.name), href=server_trust_href(server.name)),
            state_mark(_state(server)),
            number(len(server.tools)),
            word(server.mode.value) if server.mode is not None else "–",
            el("code", named(server.approved.shown, 160)),
            ago(server.approved.at_ms, values.now_ms),
            [el("div", note, class_="note") for note in _noted(server)] or "–",
        )
        for server in values.servers[:_MOST_SERVERS]
    ]
    titles = ("server", "state", "#tools", "mode", "approved as", "since", "notes")
    if not rows:
        return section("Servers", el("p", "No server has listed tools yet.", class_="empty"))
    more = len(values.servers) - _MOST_SERVERS
    note = f"and {more:,} more: mcp-optimizer trust list" if more > 0 else None
    return section("Servers", table(titles, rows, "Servers and approvals", "stack"), note=note)


def _state(server: ServerOverview) -> str:
    if server.waiting is not None:
        return "server changed"
    return "changed" if server.unapproved else APPROVED


def _noted(server: ServerOverview) -> list[str]:
    """What is worth a look, in few lines."""
    found = [f"{named(tool.name, 60)}: {'; '.join(tool.notes)}" for tool in server.tools if tool.notes]
    return [named(line, 200) for line in found[:3]] + ([f"and {len(found) - 3:,} more"] if len(found) > 3 else [])


def _tools(values: TrustPage) -> Html | None:
    server = next((one for one in values.servers if one.name == values.only), None)
    if server is None:
        return None
    begin = (values.number - 1) * PAGE_OF_TOOLS
    rows: list[tuple[Child, ...]] = [
        (
            el("a", named(tool.name), href=tool_href(server.name, tool.name)),
            state_mark(tool.state),
            ago(tool.since_ms, values.now_ms),
            word(tool.by or "–") if len(tool.by) <= _SHORT else named(tool.by),
            _notes(tool),
        )
        for tool in server.tools[begin : begin + PAGE_OF_TOOLS]
    ]
    last = max(1, -(-len(server.tools) // PAGE_OF_TOOLS))
    pages = pager(PATH, {"server": server.name}, values.number, last, "Pages of tools")
    reset = el("div", _reset(server.name), class_="actions after") if values.visitor.can_manage else None
    titles = ("tool", "state", "since", "by", "notes")
    return section("All of its tools", table(titles, rows, "Tools and their state", "stack"), pages, reset)


def _notes(tool: ToolOverview) -> Child:
    return [el("div", named(note, 200), class_="note") for note in tool.notes] or "–"
