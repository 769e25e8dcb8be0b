"""Building blocks of pages: the frame, tables, figures, untrusted names, times, fields and buttons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from mcp_optimizer.dashboard.charts import Period, bars_over_time
from mcp_optimizer.dashboard.html import Child, Html, el, join, number
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.metrics.reduction import Reduction, change_in_words
from mcp_optimizer.metrics.usage import Usage
from mcp_optimizer.runtime.terminal_text import counted, span

_LINKS = (
    ("/", "Overview"),
    ("/servers", "Servers"),
    ("/catalog", "Catalog"),
    ("/callers", "Callers"),
    ("/rules", "Rules"),
    ("/trust", "Trust"),
    ("/audit", "Audit"),
    ("/logins", "Logins"),
    ("/settings", "Settings"),
)


def frame(
    title: str,
    *body: Child,
    current: str = "",
    version: str = "",
    query: str = "",
    visitor: Visitor | None = None,
    is_closed: bool = False,
) -> str:
    """A complete page of the dashboard. `is_closed`: for a visitor who may see no other page."""
    search = el(
        "form",
        el("label", "Search as a model does", for_="q", class_="unseen"),
        el("input", id="q", name="q", type="search", value=query, placeholder="What would find_tool return for …",
           maxlength="500", autocomplete="off", accesskey="s"),
        el("button", "Search", type="submit"),
        action="/search", method="get", role="search",
    )  # fmt: skip
    links = el("nav", [el("a", label, href=href, aria_current="page" if href == current else None)
                       for href, label in _LINKS], aria_label="Pages")  # fmt: skip
    brand = el("a", "mcp-optimizer", href="/", class_="brand")
    header = el("header", brand, _sign_out(visitor), None if is_closed else [links, search])
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} · mcp-optimizer"),
        el("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        el("link", rel="stylesheet", href="/static/style.css"),
        # Not deferred: the first paint has the chosen theme.
        el("script", src="/static/theme.js"),
        el("script", src="/static/dashboard.js", defer=True),
    )
    skip = el("a", "Skip to the content", href="#content", class_="skip")
    footer = el("footer", el("span", f"mcp-optimizer {version}"), _themes()) if version else None
    page = el("html", head, el("body", skip, header, el("main", *body, id="content"), footer), lang="en")
    return "<!doctype html>\n" + page


def _themes() -> Html:
    """The choice of a theme; shown by the script that applies it."""
    options = [
        el("option", told, value=value) for value, told in (("", "as the system"), ("light", "light"), ("dark", "dark"))
    ]
    return el("span", el("label", "Theme", for_="theme"), " ", el("select", options, id="theme"), hidden=True)


def _sign_out(visitor: Visitor | None) -> Html | None:
    if visitor is None or not visitor.is_signed_in:
        return None
    name = shortened(visitor.principal.name, 40)
    who = el("span", name, " ", el("span", visitor.principal.role, class_="mark"), class_="note")
    return el("form", who, el("button", "Sign out"), action="/logout", method="post", class_="who")


def message_page(title: str, *text: Child, version: str = "", visitor: Visitor | None = None) -> str:
    told = [el("p", line, class_="empty") for line in text]
    return frame(title, el("h1", title), told, version=version, visitor=visitor)


def shortened(text: str, most: int) -> str:
    """The beginning of an untrusted text, for places with limited room."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def page_number(text: str, last: int) -> int:
    """The requested page, limited to existing ones."""
    return min(max(int(text), 1), last) if text.isdecimal() and len(text) < 9 else 1


def pager(path: str, asked: Mapping[str, object], at: int, last: int, label: str) -> Html | None:
    """Links to the pages before and after; `asked` is the rest of the query."""
    if last == 1:
        return None

    def link(text: str, to: int) -> Html:
        if not 1 <= to <= last:
            return el("span", text, class_="note")
        query = {key: value for key, value in {**asked, "page": to}.items() if value}
        return el("a", text, href=f"{path}?{urlencode(query, errors='replace')}")

    place = el("span", f"page {at:,} of {last:,}")
    return el("nav", link("Previous", at - 1), place, link("Next", at + 1), class_="pager", aria_label=label)


def section(title: str, *body: Child, note: Child = None, css: str = "", id_: str | None = None) -> Html:
    heading = el("div", el("h2", title), el("p", note, class_="note") if note else None, class_="heading")
    return el("section", heading, *body, class_=css or None, id=id_)


def figure(label: str, value: str, note: Child = None, css: str = "") -> Html:
    """One important number and its label."""
    return el(
        "div", el("dt", label), el("dd", value), el("dd", note, class_="note") if note else None, class_=f"figure {css}"
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[Child]], caption: str, css: str = "") -> Html:
    """A table with names on the left; columns whose title begins with # are numbers, on the right.

    With the class `stack`, each row becomes a block on a phone, and each cell shows its title.
    """
    is_stacked = "stack" in css.split()
    numeric = [title.startswith("#") for title in titles]
    plain = [title.lstrip("#") for title in titles]
    head = el("tr", [
        el("th", title, scope="col", class_="n" if is_number else None)
        for title, is_number in zip(plain, numeric, strict=True)
    ])  # fmt: skip
    body = [
        el("tr", [el("td", cell, class_="n" if is_number else None, data_title=title if is_stacked else None)
                  for cell, is_number, title in zip(row, numeric, plain, strict=True)])
        for row in rows
    ]  # fmt: skip
    shown = el("table", el("caption", caption, class_="unseen"), el("thead", head), el("tbody", body), class_=css)
    return el("div", shown, class_="scroll", tabindex="0", role="region", aria_label=caption)


def state_mark(state: str, href: str | None = None) -> Html:
    """A state with its colour; a link if the visitor can act on it."""
    return el("a" if href else "span", state, class_=f"state {state.replace(' ', '-')}", href=href)


def tool_href(server: str, tool: str) -> str:
    return f"/tools/{quote(server, safe='', errors='replace')}/{quote(tool, safe='', errors='replace')}"


def server_href(server: str) -> str:
    return "/catalog?" + urlencode({"server": server}, errors="replace")


def server_page_href(server: str, *more: str) -> str:
    """The address of a server's page, or of an action on it."""
    return "/".join(["/servers", *(quote(part, safe="", errors="replace") for part in (server, *more))])


def moment(at: float) -> str:
    """A time for programs, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def subject(event: Event) -> tuple[str, str | None]:
    """The subject of an event in a few words, and the page with details if there is one."""
    if event.kind is EventKind.CALL and event.tool:
        return event.tool, tool_href(event.server, event.tool)
    if event.kind is EventKind.FIND:
        more = f" +{len(event.found) - 2}" if len(event.found) > 2 else ""
        return (", ".join(tool for _, tool in event.found[:2]) or "nothing") + more, None
    if event.kind is EventKind.LOAD:
        return (f"profile {event.tool}" if event.tool else "our own tools"), None
    return "", None


_NOBODY_KNOWN = frozenset({LOCAL.key, "anyone"})
"""Callers without a key: the owner's clients on stdio, and any program at an open gateway."""


def who_asked(event: Event) -> str:
    """The client of an event, and its caller if it identified itself."""
    caller = "" if event.caller in _NOBODY_KNOWN else event.caller
    return ", ".join(filter(None, (event.client, caller)))


def sign(change: Reduction) -> str:
    """The CSS class of a figure that grew although it should have shrunk."""
    return "worse" if change.saved < 0 else ""


def savings_figures(usage: Usage) -> Html:
    """The savings with both ways of pricing, and in money if a model is set; or the additional cost, and its reason."""
    saved, money, results = usage.savings, usage.money, usage.results
    figures = [
        figure(
            f"{_said(saved.uncached)} at full price",
            change_in_words(saved.uncached),
            f"{number(saved.uncached.after)} tokens read instead of {number(saved.uncached.before)}",
            f"main {sign(saved.uncached)}".strip(),
        ),
        figure(
            f"{_said(saved.cached)} when cached",
            change_in_words(saved.cached),
            f"worth {number(saved.cached.after)} full-price tokens instead of {number(saved.cached.before)}",
            sign(saved.cached),
        ),
    ]
    if money is not None:
        model, currency = money.prices.model, money.prices.currency
        note = f"{model}; cached: {_said(money.cached).lower()} {currency} {number(abs(money.cached.saved), 2)}"
        amount = f"{currency} {number(abs(money.uncached.saved), 2)}"
        figures.append(figure(f"{_said(money.uncached)} in money", amount, note, sign(money.uncached)))
    conversations = counted(saved.savings.sessions, "conversation")
    figures.append(
        figure(
            "Calls and searches",
            f"{number(usage.times(EventKind.CALL))} · {number(usage.times(EventKind.FIND))}",
            f"in {conversations}, {counted(saved.savings.with_us.requests, 'model request')}",
        )
    )
    if results.saved:
        figures.append(figure("Cut from results", f"{results.percent:.1f} %", f"{number(results.saved)} tokens"))
    if usage.scripts.saved:
        runs = counted(usage.times(EventKind.SCRIPT), "script")
        figures.append(figure("Stayed out of the context", f"{number(usage.scripts.saved)} tokens", f"in {runs}"))
    return join([
        el("p", usage.verdict.sentence, class_="verdict" if usage.verdict.is_saving else "verdict worse"),
        el("ul", [el("li", line) for line in usage.verdict.why], class_="note") if usage.verdict.why else None,
        el("dl", figures, class_="figures"),
    ])  # fmt: skip


def _said(change: Reduction) -> str:
    return "Saved" if change.saved >= 0 else "Paid more"


def assumptions(usage: Usage) -> Html:
    return el(
        "details",
        el("summary", "What these numbers assume"),
        el("ul", [el("li", line) for line in usage.stated.assumptions]),
        el("p", "Settings: requests_per_session, price_model."),
        class_="note",
    )


_PERIOD_LABELS = {
    "minute": ("%d %B %Y, %H:%M", "%H:%M"),
    "hour": ("%d %B %Y, %H:%M", "%H:%M"),
    "day": ("%Y-%m-%d", "%m-%d"),
}
_BY = {"minute": "five minutes", "hour": "hour", "day": "day"}


def savings_chart(usage: Usage) -> Html:
    label, short_label = _PERIOD_LABELS[usage.period]
    periods = [
        Period(f"{row.begin:{label}}", f"{row.begin:{short_label}}", row.without, row.with_us) for row in usage.periods
    ]
    legend = el(
        "p",
        el("span", class_="key with"),
        " read with mcp-optimizer ",
        el("span", class_="key without"),
        f" would have been read without; tokens by {_BY[usage.period]}, UTC",
        class_="note",
    )
    pictures = bars_over_time(periods), bars_over_time(periods[-14:], 370, 190, "narrow")
    return el("div", *pictures, legend)


def advice_list(lines: Iterable[str]) -> Html:
    return el("ul", [el("li", marked(line)) for line in lines], class_="advice")


def marked(line: str) -> list[object]:
    """A line with its `names` set as code."""
    return [el("code", piece) if at % 2 else piece for at, piece in enumerate(line.split("`"))]


LONGEST_NAME = 120


def named(text: str, most: int = LONGEST_NAME) -> str:
    """An untrusted name with hidden characters shown, cut to a limited length."""
    return shortened(with_hidden_shown(text[: most + 1]), most)


def word(text: str) -> Html:
    """A word of ours that a narrow column must not break."""
    return el("span", text, class_="word")


def ago(at_ms: int | None, now_ms: int, never: str = "never") -> Child:
    """The distance of a time from now, in the past or future."""
    if at_ms is None:
        return never
    seconds = (now_ms - at_ms) / 1_000
    told = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    return time_shown(at_ms, told)


def time_shown(at_ms: int, told: str = "") -> Html:
    """A time, in words or in UTC."""
    # Limited to the range of the calendar: the value may come from a file that was edited.
    at = max(0.0, min(at_ms / 1_000, 253_402_300_000.0))
    exact = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    return el("time", told or exact, datetime=moment(at), title=f"{exact} UTC")


def field(label: str, name: str, *control: Child, note: str = "") -> Html:
    """A label, its control and a note."""
    told = el("span", note, class_="note", id=f"{name}-note") if note else None
    return el("p", el("label", label, for_=name), *control, told)


def text_field(label: str, name: str, value: str = "", note: str = "", **given: object) -> Html:
    about = f"{name}-note" if note else None
    made = el(
        "input", id=name, name=name, type="text", value=value, autocomplete="off", aria_describedby=about, **given
    )
    return field(label, name, made, note=note)


def text_area(name: str, value: str = "", **given: object) -> Html:
    """A field for several lines. Browsers drop the first line break, so one is added that is not part of the value."""
    return el("textarea", f"\n{value}", id=name, name=name, autocomplete="off", spellcheck="false", **given)


def choice(label: str, name: str, options: Sequence[tuple[str, str]], value: str = "", note: str = "") -> Html:
    """`options`: pairs of the value that is sent and the text that people read."""
    made = [el("option", told, value=sent, selected=sent == value) for sent, told in options]
    return field(label, name, el("select", made, id=name, name=name), note=note)


def button(label: str, about: str, action: str, *fields: Child, is_main: bool = False) -> Html:
    """A form with a single button. Several buttons share its label; screen readers get `about` in addition."""
    made = el("button", label, el("span", f" – {about}", class_="unseen"), class_="main" if is_main else None)
    return el("form", *fields, made, action=action, method="post")


def confirmed(label: str, about: str, question: str, action: str, *fields: Child) -> Html:
    """A button for an irreversible action, shown after a first click."""
    summary = el("summary", label, el("span", f" – {about}", class_="unseen"))
    yes = button(f"Yes, {label.lower()}", about, action, *fields)
    return el("details", summary, el("p", question, class_="note"), yes, class_="confirm")


def hidden(name: str, value: str) -> Html:
    return el("input", type="hidden", name=name, value=value)
