"""`servers`: the configured servers, their state and what their tools cost."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer

from mcp_optimizer.cli.inquiry import FreshFlag, Inquiry
from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import started
from mcp_optimizer.cli.server_rows import changes_of
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.runtime.terminal_text import in_a_line
from mcp_optimizer.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(servers)


@with_settings()
def servers(*, settings: Settings, flags: frozenset[str], fresh: FreshFlag = False, as_json: JsonFlag = False) -> None:
    """List the configured servers, their state and the cost of their tools."""
    from mcp_optimizer.control.requests import ServersRequest

    begin = partial(started, shows_servers=True)
    rows = Inquiry(settings, flags, fresh).answer(ServersRequest(), begin, shows_servers=True)
    if as_json:
        print_json({"servers": rows})
    else:
        _show_servers(rows)


def _show_servers(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for title in ("server", "state", "transport"):
        table.add_column(title, no_wrap=True)
    for title in ("tools", "tokens"):
        table.add_column(title, justify="right")
    table.add_column("", overflow="fold", ratio=1)
    for row in rows:
        texts = (row["name"], row["status"], row["transport"], f"{row['tools']:,}", f"{row['tokens']:,}")
        said = "; ".join(filter(None, [row.get("reason", ""), *changes_of(row)]))
        table.add_row(*map(Text, texts), Text(in_a_line(said), style="yellow"))
    console().print(table)
