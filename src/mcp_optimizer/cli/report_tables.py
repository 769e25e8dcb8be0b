"""The report in a terminal: tables that fit eighty columns, side by side if there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL
from mcp_optimizer.metrics.reduction import change_in_words
from mcp_optimizer.runtime.terminal_text import counted, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mcp_optimizer.metrics.reduction import Reduction
    from mcp_optimizer.metrics.report import Report, ServerCost, ToolCost
    from mcp_optimizer.metrics.usage import ToolCalls, ToolFinds, Usage

_WIDE = 130
"""Minimum columns for two tables side by side."""

_UNNAMED = (LOCAL_PRINCIPAL.name, ANYONE.name)
"""Callers whose name identifies no one."""

_MOST_ROWS = 15

NO_HISTORY = (
    "No client has used these servers yet. Connect one with `mcp-optimizer connect`, use it, and see its savings here."
)


def show_report(out: Console, report: Report) -> None:
    """Headline, advice, savings, use, the effect of each measure, large tools."""
    out.print(
        f"[bold]{counted(report.tool_count, 'tool')} of {counted(len(report.servers), 'server')}: "
        f"{report.baseline_tokens:,} tokens[/] of definitions. A client that sends them all puts "
        f"[bold]{report.sent_tokens:,}[/] into every prompt; [bold]{report.own_tokens:,}[/] with mcp-optimizer\n"
    )
    if lines := report.advice:
        out.print("[bold]What to do[/]")
        for line in lines:
            out.print(_bullet(line))
        out.print()
    if report.usage is not None:
        if report.usage.events:
            _show_usage(out, report.usage)
        else:
            out.print(NO_HISTORY, "\n")
        if others := report.usage.others_told:
            out.print(f"[dim]{others} `report --all-history` includes them.[/]\n")
    _pair(out, _forms(report), _phases(report))
    _pair(out, _profiles(report), _tiers(report))
    _pair(out, _weights("server", report.servers), _weights("tool", report.tools))
    if names := report.unclear_descriptions:
        some = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        told = f"{counted(len(names), 'tool')} listed with a sentence, because five words are not distinctive:  {some}"
        out.print(printable(told), "\n", markup=False)


def _show_usage(out: Console, usage: Usage) -> None:
    saved, results, verdict = usage.savings, usage.results, usage.verdict
    sessions = counted(saved.savings.sessions, "conversation")
    requests = counted(saved.savings.with_us.requests, "model request")
    colour = "green" if verdict.is_saving else "red"
    out.print(f"[bold {colour}]{verdict.sentence}[/] From {usage.days}, in {sessions} with {requests}")
    for line in verdict.why:
        out.print(_bullet(line))
    if usage.on_demand_told:
        out.print(printable(usage.on_demand_told), markup=False)
    rows = [
        ("tokens read, at full price", *_change(saved.uncached)),
        ("tokens read, with a prompt cache *", *_change(saved.cached)),
    ]
    if (money := usage.money) is not None:
        label = f"{money.prices.currency}, {money.prices.model}"
        rows += [(label, *_change(money.uncached, 2)), (f"{label}, cached", *_change(money.cached, 2))]
    if results.saved:
        rows.append(("results, before and after limits", *_change(results)))
    if usage.scripts.saved:
        rows.append(("results in scripts: stayed out of the context", *_change(usage.scripts)))
    out.print(_table(("", "without us", "with us", "difference"), rows))
    out.print("[dim]* as full-price tokens. " + " ".join(usage.stated.assumptions) + "[/]\n")
    kinds = _table(
        ("what", "times", "tokens", "failed", "p50 ms", "p95 ms"),
        [
            (row.kind.value, _n(row.activity.times), _n(row.activity.tokens), _n(row.activity.failed),
             f"{row.activity.p50_ms:,.0f}", f"{row.activity.p95_ms:,.0f}")
            for row in usage.kinds
        ],
    )  # fmt: skip
    clients = _table(
        ("client", "times", "tokens"),
        [(row.name or "(no name)", _n(row.activity.times), _n(row.activity.tokens)) for row in usage.clients[:8]],
    )
    _pair(out, kinds, clients)
    if any(row.name not in _UNNAMED for row in usage.callers):
        own = [(row.name, _n(row.activity.times), _n(row.activity.tokens)) for row in usage.callers[:_MOST_ROWS]]
        out.print(_table(("caller", "times", "tokens"), own))
    called = _table(
        ("called", "times", "failed", "tokens", "a call"),
        [
            (_name(row), _n(row.activity.times), _n(row.activity.failed), _n(row.activity.tokens),
             _n(row.activity.tokens_each))
            for row in usage.called[:_MOST_ROWS]
        ],
    )  # fmt: skip
    found = _table(
        ("found", "times", "called"),
        [(_name(row), _n(row.times), _n(row.called)) for row in usage.found[:_MOST_ROWS]],
    )
    _pair(out, called, found)
    never = _table(
        ("never called", "tools", "of", "tokens"),
        [(row.server, _n(row.tools), _n(row.of), _n(row.tokens)) for row in usage.never_called[:8]],
    )
    _pair(out, never, None)


def _forms(report: Report) -> Table:
    rows = [
        ("all, compressed schema", report.forms.schema),
        ("all, signatures", report.forms.signature),
        ("three largest, compressed", report.largest_forms.schema),
        ("three largest, signatures", report.largest_forms.signature),
        (f"{report.profile.value}, five words", report.total),
    ]
    cells = [(label, _n(row.before), _n(row.after), f"{row.percent:.1f} %") for label, row in rows]
    return _table(("what is sent", "before", "after", "saved"), cells)


def _phases(report: Report) -> Table:
    """The phases, with their targets if any."""
    titles: tuple[str, ...] = ("phase, each by itself", "saved")
    rows: list[tuple[str, ...]] = [(phase.phase_name, _n(phase.total_reduction)) for phase in report.phases]
    if any(phase.target_reduction is not None for phase in report.phases):
        titles += ("target", "")
        met = [(_n(phase.target_reduction or 0), "✓" if phase.achieved else "✗") for phase in report.phases]
        rows = [row + more for row, more in zip(rows, met, strict=True)]
    return _table(titles, rows)


def _profiles(report: Report) -> Table:
    cells = [
        (cost.profile.value, _n(cost.tools), _n(cost.tokens), _n(cost.budget) if cost.budget else "–", cost.measures)
        for cost in report.profiles
    ]
    return _table(("profile", "tools", "tokens", "budget", "how"), cells, texts=("how",))


def _tiers(report: Report) -> Table:
    cells = [
        (tier.tier_name.value, _n(tier.tool_count), _n(tier.total_tokens), f"{tier.average_per_tool:,.0f}")
        for tier in report.tiers
    ]
    return _table(("tier", "tools", "tokens", "a tool"), cells)


def _weights(title: str, costs: Sequence[ServerCost | ToolCost]) -> Table:
    cells = [(cost.title, _n(cost.baseline), _n(cost.schema), _n(cost.signature)) for cost in costs[:_MOST_ROWS]]
    more = len(costs) - _MOST_ROWS
    caption = f"and {more:,} more, with --json or --html" if more > 0 else None
    return _table((title, "tokens", "schema", "signature"), cells, caption=caption)


def _table(
    titles: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    texts: tuple[str, ...] = (),
    caption: str | None = None,
) -> Table:
    """Names on the left, shortened if space is short; numbers on the right, never shortened."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        expand=True,
        caption=caption,
        caption_style="dim",
        caption_justify="left",
    )
    for at, title in enumerate(titles):
        if at == 0:
            table.add_column(title, overflow="ellipsis", no_wrap=True, ratio=1, min_width=8)
        elif title in texts:
            table.add_column(title, overflow="fold", ratio=2)
        else:
            table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _pair(out: Console, left: Table, right: Table | None) -> None:
    from rich.table import Table

    if out.width < _WIDE or right is None:
        for table in (left, right):
            if table is not None and table.row_count:
                out.print(table)
                out.print()
        return
    both = Table.grid(expand=True, padding=(0, 4))
    both.add_column(ratio=1)
    both.add_column(ratio=1)
    both.add_row(left, right)
    out.print(both)
    out.print()


def _bullet(line: str) -> Table:
    """A bullet point with indented continuation lines."""
    from rich.table import Table
    from rich.text import Text

    point = Table.grid(padding=(0, 1))
    point.add_row("•", Text(printable(line)))
    return point


def _change(row: Reduction, digits: int = 0) -> tuple[str, str, str]:
    return (f"{row.before:,.{digits}f}", f"{row.after:,.{digits}f}", change_in_words(row, digits))


def _n(number: float) -> str:
    return f"{number:,}"


def _name(row: ToolCalls | ToolFinds) -> str:
    return f"{row.tool} · {row.server}"
