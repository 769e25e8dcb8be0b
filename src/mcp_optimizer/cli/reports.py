"""`report` and `show`: what a catalog costs and what is saved on it, and one tool before and after."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from mcp_optimizer.app import Optimizer

_MOST_ROWS = 20

ToolsDir = Annotated[
    Path | None, typer.Option("--tools-dir", help="Read tools/list dumps (*.json) from a folder; starts nothing.")
]


def register(app: typer.Typer) -> None:
    for command in (report, show):
        app.command()(command)


@with_settings()
def report(*, settings: Settings, tools_dir: ToolsDir = None, as_json: JsonFlag = False) -> None:
    """What all tools cost, by server and tool, and what each phase, form and profile saves."""
    run(_report(settings, tools_dir, as_json))


@with_settings()
def show(
    tool: Annotated[str, typer.Argument(help="The tool's name, or server__tool.")],
    *,
    settings: Settings,
    tools_dir: ToolsDir = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one tool before and after: its definition, compressed, as a signature, in five words."""
    run(_show(settings, tool, tools_dir, as_json))


@asynccontextmanager
async def _catalog(settings: Settings, tools_dir: Path | None) -> AsyncIterator[Optimizer]:
    """The servers' tools, or those of dumps. No encoder: nothing is searched."""
    settings = settings.model_copy(update={"encoder": "none"})
    if tools_dir is None:
        async with started(settings) as optimizer:
            yield optimizer
        return
    from mcp_optimizer.app import Optimizer

    optimizer = Optimizer.from_dumps(tools_dir, settings)
    optimizer.start()
    await optimizer.catalog.caught_up()
    try:
        yield optimizer
    finally:
        await optimizer.stop()


async def _report(settings: Settings, tools_dir: Path | None, as_json: bool) -> None:
    from mcp_optimizer.cli.show import console
    from mcp_optimizer.metrics.report import make_report
    from mcp_optimizer.profiles.tiers import ProfileName

    selected = ProfileName((settings.tool_profile or "minimal").title())
    async with _catalog(settings, tools_dir) as optimizer:
        found = make_report(optimizer.snapshot, optimizer.forms, optimizer.registration, selected)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        _show_report(console(), found)


def _show_report(out: Console, found: dict[str, Any]) -> None:
    out.print(
        f"[bold]{found['tool_count']:,} tools, {found['baseline_tokens']:,} tokens[/] in every prompt without us\n"
    )
    saved = [("all tools, compressed schema", found["forms"]["schema"])]
    saved += [("all tools, signatures", found["forms"]["signature"])]
    saved += [("three largest, compressed schema", found["largest_three"]["schema"])]
    saved += [("three largest, signatures", found["largest_three"]["signature"])]
    saved += [(f"profile {found['profile']}, five-word descriptions", found["total"])]
    _table(
        out,
        ("what is sent", "before", "after", "saved"),
        [(label, f"{row['before']:,}", f"{row['after']:,}", f"{row['percent']:.1f} %") for label, row in saved],
    )
    _table(
        out,
        ("phase", "saved", "target", ""),
        [
            (p["phase_name"], f"{p['total_reduction']:,}", f"{p['target_reduction']:,}", "✓" if p["achieved"] else "✗")
            for p in found["phases"]
        ],
    )
    _table(
        out,
        ("profile", "tools", "tokens", "budget", "how"),
        [
            (
                p["profile"],
                f"{p['tools']:,}",
                f"{p['tokens']:,}",
                f"{p['budget'] or 0:,}" if p["budget"] else "–",
                p["measures"],
            )
            for p in found["profiles"]
        ],
    )
    _table(
        out,
        ("tier", "tools", "tokens", "a tool"),
        [
            (t["tier_name"], f"{t['tool_count']:,}", f"{t['total_tokens']:,}", f"{t['average_per_tool']:,.0f}")
            for t in found["tiers"]
        ],
    )
    rows = [("server", found["servers"]), ("name", found["tools"])]
    for key, entries in rows:
        _table(
            out,
            ("server" if key == "server" else "tool", "tokens", "schema", "signature"),
            [
                (entry[key], f"{entry['baseline']:,}", f"{entry['schema']:,}", f"{entry['signature']:,}")
                for entry in entries[:_MOST_ROWS]
            ],
        )
        if len(entries) > _MOST_ROWS:
            out.print(f"[dim]and {len(entries) - _MOST_ROWS:,} more; all of them with --json[/]\n")
    if found["unclear_descriptions"]:
        names = found["unclear_descriptions"]
        out.print(
            f"{len(names)} tools keep a sentence, since five words would not tell them apart: {', '.join(names[:5])} …"
        )


def _table(out: Console, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column(titles[0], overflow="ellipsis", no_wrap=True, ratio=1)
    for title in titles[1:]:
        table.add_column(title, justify="right" if title not in ("how", "") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)
    out.print()


async def _show(settings: Settings, name: str, tools_dir: Path | None, as_json: bool) -> None:
    from mcp_optimizer.cli.show import console
    from mcp_optimizer.compression.descriptions import Level
    from mcp_optimizer.forms import Detail
    from mcp_optimizer.terminal_text import printable

    async with _catalog(settings, tools_dir) as optimizer:
        tool = optimizer.gateway.resolve(name)
        forms = {detail: optimizer.forms.form(tool, detail) for detail in Detail}
        words = optimizer.registration.described(tool.name, Level.WORDS)
        steps = optimizer.forms.steps(tool)
    if as_json:
        shown = {
            detail.value: {"tokens": f.tokens, "tool": f.definition.model_dump(mode="json")}
            for detail, f in forms.items()
        }
        extra = {"words": words, "steps": [{"technique": s.technique, "tokens": s.tokens} for s in steps]}
        print(json.dumps({**shown, **extra}, ensure_ascii=False))
        return
    out = console()
    for detail in (Detail.FULL, Detail.SCHEMA, Detail.SIGNATURE):
        form = forms[detail]
        out.print(f"[bold]{detail.value}[/]: {form.tokens:,} tokens")
        is_signature = detail is Detail.SIGNATURE and form.definition.input_schema == {"type": "object"}
        text = (form.definition.description or "") if is_signature else form.definition.model_dump_json(indent=2)
        out.print(printable(text), markup=False, soft_wrap=True)
        out.print()
    out.print("[bold]five words[/]:", printable(words), highlight=False)
    for step in steps:
        out.print(f"[dim]{step.tokens:,} tokens after: {step.technique}[/]")
