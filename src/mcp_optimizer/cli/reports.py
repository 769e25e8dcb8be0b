"""`report` and `show`: what a catalog costs and how much is saved, and one tool before and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_gateway import FreshFlag, Inquiry, run, started
from mcp_optimizer.cli.command_options import JsonFlag, complete_tool, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.metrics.report import Report
    from mcp_optimizer.metrics.tool_sizes import Sizes
    from mcp_optimizer.metrics.usage import Usage

ToolsDir = Annotated[
    Path | None, typer.Option("--tools-dir", help="Read tools/list dumps (*.json) from a folder; start no server.")
]


def register(app: typer.Typer) -> None:
    for command in (report, show):
        app.command()(command)


@with_settings()
def report(
    *,
    settings: Settings,
    tools_dir: ToolsDir = None,
    since: Annotated[str | None, typer.Option(help="Only history since then: 12h, 7d, 2w, or a date.")] = None,
    all_history: Annotated[
        bool, typer.Option("--all-history", help="Include other configurations, and servers that are gone.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page with charts to a file.")] = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show savings, searches, calls and unused tools, the cost of all tools, and the saving of each measure."""
    run(_report(settings, tools_dir, as_json, html, since, everything=all_history, fresh=fresh))


@with_settings()
def show(
    tool: Annotated[str, typer.Argument(help="The tool's name, or server__tool.", autocompletion=complete_tool)],
    *,
    settings: Settings,
    flags: frozenset[str],
    tools_dir: ToolsDir = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show one tool before and after: its definition, compressed, as a signature, in five words."""
    from mcp_optimizer.app.control.command_requests import ShowRequest

    inquiry = Inquiry(settings, flags, fresh=fresh or tools_dir is not None)
    shown = inquiry.answer(ShowRequest(tool=tool), partial(_catalog, tools_dir=tools_dir))
    if as_json:
        forms = {detail: {key: form[key] for key in ("tokens", "tool")} for detail, form in shown.pop("forms").items()}
        print_json({**forms, **shown})
    else:
        _show(shown)


@asynccontextmanager
async def _catalog(settings: Settings, fresh: bool, tools_dir: Path | None) -> AsyncIterator[Optimizer]:
    """The servers' tools, or those of dumps. No encoder, because nothing is searched by meaning."""
    settings = settings.model_copy(update={"encoder": "none"})
    if tools_dir is None:
        async with started(settings, fresh) as optimizer:
            yield optimizer
        return
    from mcp_optimizer.app.optimizer import Optimizer

    optimizer = Optimizer.from_dumps(tools_dir, settings)
    optimizer.start()
    await optimizer.catalog.caught_up()
    try:
        yield optimizer
    finally:
        await optimizer.stop()


@asynccontextmanager
async def _measured(
    settings: Settings, fresh: bool, tools_dir: Path | None
) -> AsyncIterator[tuple[Optimizer, Sizes | None]]:
    """The same for a report, with the tools' sizes if already known."""
    if tools_dir is None:
        async with _catalog(settings, fresh, None) as optimizer:
            yield optimizer, None
        return
    from mcp_optimizer.app.optimizer import Optimizer

    optimizer = Optimizer.from_dumps(tools_dir, settings.model_copy(update={"encoder": "none"}))
    try:
        yield optimizer, await optimizer.measure_dumps()
    finally:
        await optimizer.stop()


async def _report(
    settings: Settings,
    tools_dir: Path | None,
    as_json: bool,
    html: Path | None,
    since: str | None,
    *,
    everything: bool,
    fresh: bool,
) -> None:
    from mcp_optimizer.cli.report_tables import show_report
    from mcp_optimizer.metrics.report import report_values

    begin = read_since(since, datetime.now().astimezone())
    found = await report_on(settings, tools_dir, begin, everything=everything, measured=as_json, fresh=fresh)
    if html is not None:
        _write(html, found)
    if as_json:
        print_json(report_values(found))
    elif html is None:
        show_report(console(), found)
    else:
        print(f"Wrote the report to {html}.")


async def report_on(
    settings: Settings,
    tools_dir: Path | None,
    since: float = 0.0,
    *,
    everything: bool = False,
    measured: bool = False,
    fresh: bool = False,
) -> Report:
    """The report on the servers of the settings and their history, or on a folder of dumps, which has none.

    With `measured`, includes what the parts of each tool cost in each phase.
    """
    from mcp_optimizer.app.part_options import selected_profile
    from mcp_optimizer.metrics.report import make_report
    from mcp_optimizer.metrics.tool_sizes import NO_TARGETS, measurements
    from mcp_optimizer.token_counter import TokenCounter
    from mcp_optimizer_demo.targets import KANBAN_TARGETS

    async with _measured(settings, fresh, tools_dir) as (optimizer, sizes):
        catalog, selected = (optimizer.snapshot, optimizer.forms, optimizer.lists), selected_profile(settings)
        async with optimizer.parts.refresher.remembering():
            made = make_report(
                *catalog,
                optimizer.own_tokens,
                selected,
                sizes,
                usage=await _usage(optimizer, since, everything=everything) if tools_dir is None else None,
                targets=KANBAN_TARGETS if settings.demo and tools_dir is None else NO_TARGETS,
            )
        counter = TokenCounter(settings.encoding)
        return replace(made, measurements=measurements(*catalog, selected, counter)) if measured else made


async def _usage(optimizer: Optimizer, since: float, *, everything: bool) -> Usage | None:
    """The recorded use of these servers' tools, or of all tools on record; None without history."""
    history = await optimizer.storage.history(everything=everything)
    if history is None:
        return None
    return optimizer.usage(await history.read(since), await history.others(since), everything=everything)


def _write(path: Path, found: Report) -> None:
    from mcp_optimizer.dashboard.report_page import report_page
    from mcp_optimizer.runtime.local_files import write_file

    try:
        write_file(path, report_page(found))
    except OSError as error:
        raise ConfigurationError(f"Cannot write the report to {path}: {error.strerror}.") from error


_UNITS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}


def read_since(text: str | None, now: datetime, option: str = "--since") -> float:
    """A time as people write it: 7d, 12h, 2w, or a date."""
    if text is None:
        return 0.0
    if text[:-1].isdecimal() and text[-1:] in _UNITS:
        return now.timestamp() - int(text[:-1]) * _UNITS[text[-1]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} {text!r} is neither a period, such as 12h, 7d or 2w, nor a date, such as {now.date()}."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).timestamp()


def _show(shown: dict[str, Any]) -> None:
    from rich.text import Text

    from mcp_optimizer.runtime.terminal_text import in_a_line, printable

    out = console()
    for detail in ("full", "schema", "signature"):
        form = shown["forms"][detail]
        out.print(f"[bold]{detail}[/]: {form['tokens']:,} tokens")
        out.print(printable(form["text"]), markup=False, soft_wrap=True)
        out.print()
    schema = shown["tool_schema"]
    out.print("[bold]five words[/]:", Text(in_a_line(shown["words"])), highlight=False)
    states = f"{schema['schema_state']}, {schema['load_state']}, {schema['description_state']}"
    shares = f"; shares {', '.join(schema['shared_params'])} with other tools" if schema["shared_params"] else ""
    out.print("[bold]state[/]:", Text(in_a_line(f"{states}; profile {schema['profile']}{shares}")), highlight=False)
    for step in shown["steps"]:
        out.print(f"[dim]{step['technique']}: {step['tokens']:,} tokens left[/]")
