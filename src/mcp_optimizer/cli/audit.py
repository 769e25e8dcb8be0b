"""`audit`: who did what, newest last; and whether the file is as it was written. Starts no server."""

from __future__ import annotations

import json
import re
import textwrap
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import JsonFlag, with_settings
from mcp_optimizer.cli.reports import read_since
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable_json

if TYPE_CHECKING:
    from mcp_optimizer.access.audit.audit_file import Verified
    from mcp_optimizer.db.audit import AuditQuery
    from mcp_optimizer.domain.audit import AuditEntry

_DECISIONS = ("allow", "ask", "deny")
_DAY = 86_400
_WIDEST = 100
_NARROWEST = 30
_MOST_SHOWN = 20
_OUTCOMES = {"refused": "error of the server"}
"""Outcomes whose recorded name is easily taken for a decision."""

_Since = Annotated[str | None, typer.Option(help="Only since then: 12h, 7d, 2w, or a date.")]
_Until = Annotated[str | None, typer.Option(help="Only until then: 12h, 7d, 2w ago, or a date, which is included.")]
_Caller = Annotated[str, typer.Option(help="Only callers whose name matches, such as 'key:*'.", show_default=False)]
_Tool = Annotated[str, typer.Option(help="Only tools, prompts and resources that match.", show_default=False)]
_Server = Annotated[str | None, typer.Option(help="Only this server.")]
_Decision = Annotated[str | None, typer.Option(help="Only entries with this decision: allow, ask or deny.")]
_Limit = Annotated[int, typer.Option(help="Maximum entries, the newest.", min=1, max=1_000_000)]
_Verify = Annotated[bool, typer.Option("--verify", help="Check whether lines of the file are missing or were changed.")]
_File = Annotated[
    Path | None, typer.Argument(help="The file to verify. Default: that of the settings.", show_default=False)
]


def register(app: typer.Typer) -> None:
    app.command()(audit)


@with_settings()
def audit(
    file: _File = None,
    *,
    settings: Settings,
    since: _Since = None,
    until: _Until = None,
    caller: _Caller = "*",
    tool: _Tool = "*",
    server: _Server = None,
    decision: _Decision = None,
    limit: _Limit = 100,
    verify: _Verify = False,
    as_json: JsonFlag = False,
) -> None:
    """Show calls with their caller, rule and outcome, newest last; with --json one object per line."""
    if verify:
        _verify(settings, file, as_json=as_json)
        return
    if file is not None:
        raise ConfigurationError(f"A file is only read to verify it: mcp-optimizer audit --verify {file}.")
    if decision is not None and decision not in _DECISIONS:
        raise ConfigurationError(f"--decision {decision!r} is none of {', '.join(_DECISIONS)}.")
    from mcp_optimizer.db.audit import AuditQuery

    now = datetime.now().astimezone()
    query = AuditQuery(read_since(since, now), _end(until, now), caller, tool, server, decision, limit)
    _show(run(_read(settings, query)), as_json=as_json)


def _end(text: str | None, now: datetime) -> float | None:
    """The end of the period; of a date, that day's end."""
    if text is None:
        return None
    moment = read_since(text, now, "--until")
    return moment + _DAY if re.fullmatch(r"\d{4}-\d{2}-\d{2}|\d{8}", text) else moment


async def _read(settings: Settings, query: AuditQuery) -> list[AuditEntry]:
    from mcp_optimizer.app.setting_values import check_driver
    from mcp_optimizer.db.audit import StoredAudit
    from mcp_optimizer.db.database import open_database

    place = settings.database_place
    if place is None:
        raise ConfigurationError(
            "The audit is read from the catalog database, and --database none has none. Its file, if there is one, is "
            "plain text."
        )
    check_driver(settings)
    database = await open_database(place)
    try:
        return await StoredAudit(database).read(query)
    finally:
        await database.close()


def _show(entries: list[AuditEntry], *, as_json: bool) -> None:
    from mcp_optimizer.access.audit.audit_file import values_of

    if as_json:
        for entry in entries:
            # One object per line, as in the file, so that one program can read both.
            print(printable_json(json.dumps(values_of(entry))))
        return
    out = console()
    day = ""
    for entry in entries:
        moment = datetime.fromtimestamp(entry.at_ms / 1_000).astimezone()
        if day != (day := f"{moment:%Y-%m-%d}"):
            out.print(day, style="bold")
        line = f"{moment:%H:%M:%S}  {'; '.join(_said(entry))}"
        # Words that do not fit go on below the first word, not below the time.
        for number, part in enumerate(textwrap.wrap(line, max(out.width, _NARROWEST), subsequent_indent=" " * 10)):
            out.print(part, markup=False, soft_wrap=True, style="" if number == 0 else "dim")
    out.print("1 entry" if len(entries) == 1 else f"{len(entries):,} entries", markup=False)


def _said(entry: AuditEntry) -> list[str]:
    """Who did what, and what came of it."""
    who = f"{entry.caller or 'no caller'} of {entry.tenant}" if entry.tenant else entry.caller or "no caller"
    client = f" ({entry.client})" if entry.client else ""
    what = f"{entry.server}: {entry.tool}" if entry.server and entry.tool else entry.server or entry.tool
    why = f"{entry.decision} ({entry.rule})" if entry.rule else entry.decision
    approved = f", approved by {entry.approved_by}" if entry.approved_by else ""
    took = f"{entry.milliseconds:,.0f} ms" if entry.milliseconds else ""
    texts = (
        f"{who}{client}",
        f"{entry.method} {what}".strip(),
        f"{why}{approved}",
        _OUTCOMES.get(entry.outcome, entry.outcome),
        took,
    )
    return [_cut(in_a_line(text)) for text in texts if text]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _verify(settings: Settings, file: Path | None, *, as_json: bool) -> None:
    from mcp_optimizer.access.audit.audit_file import kept_files, verify

    path = file or settings.audit_path
    if path is None:
        raise ConfigurationError("These settings write no audit file. Name one: mcp-optimizer audit --verify FILE.")
    paths, is_complete = kept_files(path, settings.audit_files)
    if not paths:
        raise ConfigurationError(f"There is no audit file at {path}.")
    try:
        found = verify(paths, is_complete=is_complete)
    except OSError as error:
        raise ConfigurationError(f"Cannot read {error.filename}: {error.strerror}.") from error
    if as_json:
        print_json(_facts(found))
    else:
        _tell(found)
    if found.problems:
        raise typer.Exit(1)


def _facts(found: Verified) -> dict[str, Any]:
    return {
        "files": [str(path) for path in found.files],
        "lines": found.lines,
        "chains": found.chains,
        "problems": list(found.problems),
    }


def _tell(found: Verified) -> None:
    out = console()
    for problem in found.problems[:_MOST_SHOWN]:
        out.print(in_a_line(problem), markup=False, soft_wrap=True)
    read = f"{counted(found.lines, 'line')} of {counted(found.chains, 'writer')}"
    verdict = f"{counted(len(found.problems), 'problem')}" if found.problems else "nothing is missing or changed"
    out.print(f"{read} in {counted(len(found.files), 'file')}: {verdict}.", markup=False, soft_wrap=True)
