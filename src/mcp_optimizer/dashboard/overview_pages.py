"""HTML of the overview with what a visitor can do now, the catalog with its map, and the page of one tool.

Pure: knows no request and no gateway. `overview_routes` provides the values.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import quote, urlencode

from mcp_optimizer.dashboard.charts import Tile, share_bar, treemap
from mcp_optimizer.dashboard.html import Child, Html, el, join, number
from mcp_optimizer.dashboard.page_parts import (
    assumptions,
    button,
    figure,
    frame,
    hidden,
    marked,
    moment,
    named,
    pager,
    savings_chart,
    savings_figures,
    section,
    server_href,
    server_page_href,
    state_mark,
    subject,
    table,
    tool_href,
    who_asked,
)
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.events import Event, Outcome
from mcp_optimizer.metrics.usage import Usage
from mcp_optimizer.metrics.weights import Weight, by_server, sent_total, total
from mcp_optimizer.runtime.terminal_text import counted

# What a visitor can do now: sentences of the report, and for each command that they name, a button or link. A button
# does what the command would do, and its label says to what, because names in a sentence may be a server's.

_PROGRAM = "mcp-optimizer"
_SHOWN = 40


def to_do_part(lines: Sequence[str], visitor: Visitor | None) -> Html | None:
    """The section of the overview; None if there is nothing to do."""
    if not lines:
        return None
    can_manage = visitor is not None and visitor.can_manage
    items = [
        el("li", el("p", marked(line)), el("div", actions, class_="actions") if actions else None)
        for line in lines
        for actions in [actions_of(line, can_manage=can_manage)]
    ]
    return section("What to do", el("ul", items, class_="to-do"))


def actions_of(line: str, *, can_manage: bool) -> list[Html]:
    """What a page can do of the commands in a sentence."""
    found: list[Html] = []
    for command in _commands(line):
        for words, make in _ACTIONS.items():
            rest = command[len(words) :]
            if tuple(command[: len(words)]) == words and rest:
                found += make(rest, can_manage)
    return found


def _commands(line: str) -> Iterable[list[str]]:
    """The words of each command after the program's name."""
    for piece in line.split("`")[1::2]:
        try:
            words = shlex.split(piece)
        except ValueError:
            continue
        if words[:1] == [_PROGRAM]:
            yield words[1:]


Make = Callable[[Sequence[str], bool], list[Html]]


def _link(label: str, href: str) -> Html:
    return el("a", label, href=href, class_="button")


def _disable(words: Sequence[str], can_manage: bool) -> list[Html]:
    server, _, tool = words[0].partition("/")
    if not can_manage or tool == "TOOL":
        return []
    only: Child = hidden("tool", tool) if tool else None
    return [button(f"Disable {named(words[0], _SHOWN)}", "", server_page_href(server, "disable"), only)]


def _login(words: Sequence[str], can_manage: bool) -> list[Html]:
    label, server = f"Log in to {named(words[0], _SHOWN)}", quote(words[0], safe="", errors="replace")
    return [button(label, "", f"/logins/{server}", is_main=True) if can_manage else _link(label, "/logins")]


def _trust(words: Sequence[str], _can_manage: bool) -> list[Html]:
    query = urlencode({"server": words[0]}, errors="replace")
    return [_link(f"Review {named(words[0], _SHOWN)}", f"/trust?{query}")]


def _doctor(words: Sequence[str], can_manage: bool) -> list[Html]:
    name = named(words[0], _SHOWN)
    restart = [button(f"Restart {name}", "", server_page_href(words[0], "restart"))] if can_manage else []
    return [*restart, _link(f"Log of {name}", server_page_href(words[0]))]


def _tools(words: Sequence[str], _can_manage: bool) -> list[Html]:
    return [_link(f"Tools of {named(words[0], _SHOWN)}", server_href(words[0]))]


def _audit(words: Sequence[str], _can_manage: bool) -> list[Html]:
    tool = _option(words, "--tool")
    query = urlencode({"tool": tool, "since": "30d"}, errors="replace")
    return [_link(f"Calls of {named(tool, _SHOWN)}", f"/audit?{query}")] if tool else []


def _policy_test(words: Sequence[str], _can_manage: bool) -> list[Html]:
    asked = {"tool": words[0], "server": _option(words, "--server")}
    query = urlencode({name: value for name, value in asked.items() if value}, errors="replace")
    return [_link(f"Rules for {named(words[0], _SHOWN)}", f"/rules?{query}")]


def _show(words: Sequence[str], _can_manage: bool) -> list[Html]:
    server, _, tool = words[0].partition("/")
    return [_link(f"What models see of {named(tool, _SHOWN)}", tool_href(server, tool))] if tool else []


def _option(words: Sequence[str], name: str) -> str:
    """The value of an option in a command; "" without."""
    return next((value for option, value in pairwise(words) if option == name), "")


_ACTIONS: dict[tuple[str, ...], Make] = {
    ("disable",): _disable,
    ("login",): _login,
    ("trust", "diff"): _trust,
    ("doctor",): _doctor,
    ("tools",): _tools,
    ("audit",): _audit,
    ("policy", "test"): _policy_test,
    ("show",): _show,
}


DAYS = 30
RANGES = ((1, "24 hours"), (7, "7 days"), (DAYS, "30 days"), (365, "a year"))
"""The choices of the time that figures cover, in days."""

_MOST_SERVERS = 24
_MOST_TILES = 220


def catalog_map(weights: Sequence[Weight], *, links: bool = True) -> Html:
    """The catalog as a chart in which area means tokens. Drawn twice, for wide and for narrow screens."""
    tiles = _tiles(weights, links=links)
    told = (
        f"Map of {len(weights):,} tools by the tokens of their definitions, grouped by server. "
        "The same numbers are in tables."
    )
    return el("div", treemap(tiles, told, 1080, 420, "wide"), treemap(tiles, told, 380, 480, "narrow"), class_="maps")


def _tiles(weights: Sequence[Weight], *, links: bool) -> list[Tile]:
    servers = by_server(weights)
    totals = {server: total(own) for server, own in servers.items()}
    ordered = sorted(servers, key=lambda server: (-totals[server], server))
    shown, others = ordered[:_MOST_SERVERS], ordered[_MOST_SERVERS:]
    all_tokens = sum(totals.values()) or 1
    tiles = [
        Tile(
            server,
            totals[server],
            server_href(server) if links else None,
            _tool_tiles(servers[server], max(1, round(_MOST_TILES * totals[server] / all_tokens)), links=links),
            f"{server}: {counted(len(servers[server]), 'tool')}, {totals[server]:,} tokens",
        )
        for server in shown
    ]
    if others:
        rest = sum(totals[server] for server in others)
        label = f"{len(others):,} more servers"
        tiles.append(Tile(label, rest, "/catalog" if links else None, (), f"{label}: {rest:,} tokens"))
    return tiles


def _tool_tiles(own: Sequence[Weight], most: int, *, links: bool) -> tuple[Tile, ...]:
    ordered = sorted(own, key=lambda weight: (-weight.tokens, weight.tool))
    shared = len(shared_beginning([weight.tool for weight in own]))
    tiles = [
        Tile(
            w.tool[shared:],
            w.tokens,
            tool_href(w.server, w.tool) if links else None,
            (),
            f"{w.tool}: {w.tokens:,} tokens",
        )
        for w in ordered[:most]
    ]
    if rest := ordered[most:]:
        tokens = total(rest)
        tiles.append(Tile(f"{len(rest):,} more", tokens, None, (), f"{len(rest):,} more tools: {tokens:,} tokens"))
    return tuple(tiles)


_JOINTS = "_-./: "


def shared_beginning(names: Sequence[str]) -> str:
    """The beginning that all tool names of a server share, up to a separator: `browser_` distinguishes none of them."""
    if len(names) < 2:
        return ""
    # Text shared by the first and the last name in order is shared by all.
    first, last = min(names), max(names)
    common = first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
    end = max((common.rfind(joint) for joint in _JOINTS), default=-1) + 1
    return common[:end] if all(len(name) > end for name in names) else ""


PAGE = 100
_RECENT = 15


@dataclass(frozen=True)
class ServerRow:
    """A server in the overview."""

    name: str
    status: str
    tools: int
    tokens: int
    reason: str = ""
    restarts: int = 0
    protocol: str = ""


@dataclass(frozen=True)
class Overview:
    """The content of the overview."""

    version: str
    own_tokens: int
    weights: Sequence[Weight]
    servers: Sequence[ServerRow]
    usage: Usage
    recent: Sequence[Event]
    keeps_history: bool
    troubles: Sequence[str] = ()
    """Problems that exist now."""
    days: int = DAYS
    """The time that the figures cover."""

    @property
    def baseline(self) -> int:
        return total(self.weights)


def overview_page(values: Overview, visitor: Visitor | None = None) -> str:
    title = el("h1", "Overview", class_="unseen")
    told = [*values.troubles, *values.usage.advice]
    body = title, to_do_part(told, visitor), figures_part(values), overview_rest(values)
    return frame("Overview", *body, current="/", version=values.version, visitor=visitor)


def figures_part(values: Overview) -> Html:
    """The part that changes with every event and is then fetched again."""
    usage = values.usage
    now = el(
        "p",
        el("strong", number(sent_total(values.weights))),
        " tokens of definitions from ",
        el("strong", number(len(values.weights))),
        f" tools of {counted(len(values.servers), 'server')} would be in every prompt of a client that sends them all. "
        "With mcp-optimizer: ",
        el("strong", number(values.own_tokens)),
        ".",
        class_="lead",
    )
    others = el("p", usage.others_told, " ", _ALL_HISTORY, class_="note") if usage.others else None
    on_demand = el("p", usage.on_demand_told, class_="note") if usage.on_demand_told else None
    if not values.servers:
        return el("div", _first_steps(_NO_SERVERS, _WITHOUT_SERVERS), others, id="figures")
    ranges = _ranges(values.days)
    if not usage.events:
        told = _first_steps(_NO_CLIENT, _WITHOUT_CLIENTS) if values.days >= DAYS else _NOTHING_THEN
        return el("div", now, ranges, el("div", told, class_="empty"), others, id="figures")
    return el("div", now, ranges, savings_figures(usage), on_demand, assumptions(usage), others, id="figures")


def _ranges(days: int) -> Html:
    links = [el("a", told, href=f"/?days={each}", aria_current="true" if each == days else None)
             for each, told in RANGES]  # fmt: skip
    return el("nav", links, class_="ranges", aria_label="Time that the figures cover")


def _first_steps(told: str, steps: Sequence[tuple[str, str]]) -> Html:
    rows = [el("li", el("code", command), " ", el("span", what, class_="note")) for command, what in steps]
    return el("div", el("p", told), el("ul", rows, class_="steps"), class_="empty")


_NO_SERVERS = "There are no servers yet. Add one on the page Servers, or in a terminal:"
_WITHOUT_SERVERS = (
    ("mcp-optimizer import", "takes over the servers that your clients have"),
    ("mcp-optimizer add npm:PACKAGE", "or pypi:PACKAGE, or a URL: adds one and tries it"),
    ("mcp-optimizer init", "makes an empty server file"),
)
_NO_CLIENT = "No client has asked yet. Connect one; what its searches and calls save appears here as they happen."
_WITHOUT_CLIENTS = (
    ("mcp-optimizer connect CLIENT", "puts the gateway into a client on this machine"),
    ("http://…/mcp", "Connect one to /mcp of this address if it runs elsewhere"),
    ("mcp-optimizer find REQUEST", "or the search above: what a model would find"),
)
_NOTHING_THEN = "Nothing was searched or called in this time."
_ALL_HISTORY = "They count nowhere on these pages; mcp-optimizer report --all-history includes them."


def overview_rest(values: Overview) -> Html:
    usage = values.usage
    kept = None if values.keeps_history else "History is off: these numbers cover this process only."
    over_time = section("Over time", savings_chart(usage), note=kept) if usage.periods else None
    return join([
        over_time,
        section("Catalog", catalog_map(values.weights), note="Area is tokens of definitions; colour is the server."),
        el("div",
           section("Servers", servers_table(values.servers, values.baseline), css="servers"),
           section("Live", live_table(values.recent), note=_live_controls(), css="live"),
           class_="columns"),
    ])  # fmt: skip


def _live_controls() -> Html:
    return join([
        el("span", "not connected", id="live-state", role="status"),
        el("button", "Pause", id="pause", type="button", hidden=True, aria_pressed="false"),
    ])  # fmt: skip


def servers_table(servers: Sequence[ServerRow], baseline: int) -> Html:
    rows = [
        (
            [el("a", server.name, href=server_page_href(server.name)), _server_note(server)],
            state_mark(server.status, "/logins" if server.status == "login needed" else None),
            number(server.tools),
            number(server.tokens),
            share_bar(server.tokens / baseline if baseline else 0),
        )
        for server in servers
    ]
    return table(("server", "state", "#tools", "#tokens", "share"), rows, "Servers and their state", "bars")


def _server_note(server: ServerRow) -> Html | None:
    notes = [server.reason] if server.reason else []
    notes += [f"restarted {counted(server.restarts, 'time')}"] if server.restarts else []
    return el("div", "; ".join(notes), class_="note") if notes else None


def live_table(events: Sequence[Event]) -> Html:
    rows = [event_cells(event) for event in reversed(events[-_RECENT:])]
    titles = ("time", "what", "which", "#tokens", "#ms")
    # An empty table stays, because the script fills it.
    return el("div", table(titles, rows, "Current activity, newest first", "events"), id="live")


def event_cells(event: Event) -> tuple[object, ...]:
    when = el("time", f"{datetime.fromtimestamp(event.at, UTC):%H:%M:%S}", datetime=moment(event.at))
    return (when, event.kind.value, _which(event), number(event.tokens), number(event.milliseconds))


def _which(event: Event) -> list[object]:
    text, href = subject(event)
    what = el("a", text, href=href) if href is not None else text
    marks = [event.outcome.value] if event.outcome is not Outcome.OK else []
    marks += ["cached"] if event.cached else []
    marks += ["cut"] if event.truncated else []
    shown = [el("span", mark, class_="mark bad" if mark == event.outcome.value else "mark") for mark in marks]
    client = el("span", who_asked(event), class_="note") if who_asked(event) else None
    return [what, " ", client, " ", *shown]


@dataclass(frozen=True)
class CatalogPage:
    """One page of the catalog."""

    version: str
    weights: Sequence[Weight]
    """The matching tools, largest first."""
    heaviest: int
    called: Mapping[tuple[str, str], int]
    found: Mapping[tuple[str, str], int]
    server: str = ""
    word: str = ""
    number: int = 1


def catalog_page(values: CatalogPage, visitor: Visitor | None = None) -> str:
    begin = (values.number - 1) * PAGE
    shown = values.weights[begin : begin + PAGE]
    rows = [
        (
            [el("a", weight.tool, href=tool_href(weight.server, weight.tool)), " ",
             el("a", weight.server, href=server_href(weight.server), class_="note")],
            number(weight.tokens),
            share_bar(weight.tokens / values.heaviest if values.heaviest else 0),
            _or_dash(values.called.get(weight.key, 0)),
            _or_dash(values.found.get(weight.key, 0)),
        )
        for weight in shown
    ]  # fmt: skip
    filters = el(
        "form",
        el("label", "Name contains", for_="word"),
        el("input", id="word", name="word", type="search", value=values.word, maxlength="100"),
        el("input", type="hidden", name="server", value=values.server) if values.server else None,
        el("button", "Filter", type="submit"),
        el("a", "All tools", href="/catalog") if values.server or values.word else None,
        action="/catalog",
        method="get",
        class_="filter",
    )
    title = f"Tools of {values.server}" if values.server else "All tools"
    note = f"{counted(len(values.weights), 'tool')}, {total(values.weights):,} tokens; heaviest first"
    last = max(1, -(-len(values.weights) // PAGE))
    pages = pager("/catalog", {"server": values.server, "word": values.word}, values.number, last, "Pages of tools")
    body = table(("tool", "#tokens", "weight", "#called", "#found"), rows, "Tools by weight", "bars catalog")
    return frame(
        title, el("h1", title), el("p", note, class_="lead"), filters, body, pages,
        current="/catalog", version=values.version, visitor=visitor,
    )  # fmt: skip


def _or_dash(times: int) -> str:
    return number(times) if times else "–"


@dataclass(frozen=True)
class FormShown:
    """One form of a definition."""

    name: str
    tokens: int
    text: str


@dataclass(frozen=True)
class ToolPage:
    """The definition of a tool before and after compression."""

    version: str
    server: str
    tool: str
    description: str
    forms: Sequence[FormShown]
    steps: Sequence[tuple[str, int]]
    called: int = 0
    found: int = 0
    failed: int = 0
    average_tokens: int = 0


def tool_page(values: ToolPage, visitor: Visitor | None = None, trial: Html | None = None) -> str:
    """`trial`: the form to try the tool, for visitors who may."""
    full = values.forms[0].tokens or 1
    figures = [
        figure(
            form.name, number(form.tokens), f"tokens, {100 - form.tokens / full * 100:.0f} % less" if at else "tokens"
        )
        for at, form in enumerate(values.forms)
    ]
    used = f"Called {counted(values.called, 'time')} ({values.failed:,} failed), found {counted(values.found, 'time')}"
    used += f"; a result has {values.average_tokens:,} tokens on average." if values.called else "."
    steps = [(technique, number(tokens)) for technique, tokens in values.steps]
    return frame(
        values.tool,
        el("h1", values.tool),
        el("p", "of ", el("a", values.server, href=server_page_href(values.server)), class_="lead"),
        el("p", values.description, class_="description"),
        el("dl", figures, class_="figures"),
        el("p", used, class_="note"),
        trial,
        el("div", [section(form.name, el("pre", el("code", form.text), tabindex="0"), note=f"{form.tokens:,} tokens")
                   for form in values.forms[:2]], class_="columns"),
        [section(form.name, el("pre", el("code", form.text), tabindex="0"), note=f"{form.tokens:,} tokens")
         for form in values.forms[2:]],
        section("How the schema was compressed", table(("technique", "#tokens left"), steps, "Techniques"))
        if steps else None,
        version=values.version,
        visitor=visitor,
    )  # fmt: skip
