"""Stored scripts on a terminal. Prints what commands found out, and nothing that a script's author could paint with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp_optimizer.cli.show import console
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable


def tell_saved(saved: dict[str, Any]) -> None:
    takes = ", ".join(saved["parameters"]) or "nothing"
    uses = ", ".join(saved["uses"]) or "no tools"
    print(in_a_line(f"Saved. It is the tool {saved['name']} of the server {saved['server']}."))
    print(in_a_line(f"It takes {takes}; it uses {uses}; it counts as {saved['risk']}."))


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for title in ("script", "state", "class", "parameters"):
        table.add_column(title, overflow="fold")
    table.add_column("description", overflow="fold", ratio=1)
    for row in rows:
        texts = (row["name"], row["state"], row["risk"], ", ".join(row["parameters"]), row["description"])
        table.add_row(*map(Text, map(in_a_line, texts)))
    out = console()
    if rows:
        out.print(table)
    for row in rows:
        if row["reason"]:
            out.print(Text(in_a_line(f"{row['name']}: {row['reason']}"), style="yellow"), soft_wrap=True)
    out.print(counted(len(rows), "stored script"), markup=False)


def show_script(facts: dict[str, Any], source: str) -> None:
    for title, value in (
        ("name", facts["name"]),
        ("description", facts["description"]),
        ("parameters", ", ".join(facts["parameters"]) or "none"),
        ("uses", ", ".join(facts["uses"]) or "no tools"),
        ("may change", ", ".join(facts["may_change"]) or "nothing"),
        ("class", facts["risk"]),
        ("saved", facts["saved_at"]),
    ):
        print(f"{title + ':':<13}{in_a_line(value)}")
    print(f"\n{printable(source)}")
