"""`servers`: the configured servers, their state and what their tools cost."""

from __future__ import annotations

import typer

from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.cli.server_rows import changes_of, facts_of
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.runtime.terminal_text import in_a_line
from mcp_optimizer.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(servers)


@with_settings()
def servers(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """List the configured servers, their state and the cost of their tools."""
    run(_servers(settings, as_json))


async def _servers(settings: Settings, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    async with started(settings, shows_servers=True) as optimizer:
        rows = [facts_of(optimizer, state) for state in optimizer.servers()]
    if as_json:
        print_json({"servers": rows})
        return
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
