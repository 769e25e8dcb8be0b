"""What `connect` and `disconnect` print: each change as a diff before it is made, then what was done."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.runtime.terminal_text import in_a_line, printable

if TYPE_CHECKING:
    from mcp_optimizer.clients.connecting import FileChange
    from mcp_optimizer.known_clients.program import ClientProgram

_NAMED = 5


@dataclass(frozen=True)
class ClientOutcome:
    """What is planned for a client, or what became of it."""

    client: ClientProgram
    status: str
    """connect, disconnect, restore (planned); connected, disconnected, restored (done); unchanged; failed."""
    change: FileChange | None = None
    command: Sequence[str] = ()
    """The client's own command for it."""
    note: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in ("connect", "disconnect", "restore")

    @property
    def planned(self) -> FileChange:
        """The change of an outcome that is open."""
        assert self.change is not None
        return self.change


def warn(text: str) -> None:
    print(f"warning: {in_a_line(text)}", file=sys.stderr)


def show_plan(outcomes: Sequence[ClientOutcome], name: str) -> None:
    out = console()
    for one in outcomes:
        if not one.is_open or one.change is None:
            continue
        out.print(f"{one.client.title}: {one.change.place.path}", markup=False, soft_wrap=True)
        if one.command:
            out.print(f"  $ {in_a_line(shlex.join(one.command))}", markup=False, soft_wrap=True)
        elif one.change.removes_file:
            out.print("  the file is removed, because there was none before", markup=False)
        else:
            for line in _diff(one.change, name):
                out.print(f"  {printable(line)}", markup=False, soft_wrap=True)


def report(outcomes: Sequence[ClientOutcome], *, as_json: bool, dry_run: bool) -> None:
    outcomes = [one for one in outcomes if one.status]
    if as_json:
        print_json({"clients": [_as_json(one, dry_run) for one in outcomes]})
        return
    out = console()
    for one in outcomes:
        if text := _sentence(one, len(outcomes) > 1):
            out.print(in_a_line(text), markup=False, soft_wrap=True)
        if one.status in ("connect", "connected") and one.change is not None and one.change.others:
            warn(_about_others(one))


def _sentence(one: ClientOutcome, is_one_of_many: bool) -> str:
    also = f" ({one.note})" if one.note else ""
    if one.status == "connected":
        return f"Connected {one.client.title}{also}. Restart it, or reload its servers."
    if one.status == "disconnected":
        return f"Disconnected {one.client.title}{also}."
    if one.status == "restored":
        names = ", ".join(one.planned.restored) or "nothing, because all of it is there"
        how = "" if one.planned.is_exact else ", one by one, because the file was changed meanwhile"
        return f"Put back in {one.client.title}'s file{how}: {names}. They are still in your server file, too."
    if one.status == "unchanged":
        return f"{one.client.title} {one.note}; nothing was changed."
    if one.status == "failed":
        # A single failure is the error of the command.
        return f"{one.note}" if is_one_of_many else ""
    return f"{one.client.title}: nothing was written yet."


def _about_others(one: ClientOutcome) -> str:
    assert one.change is not None
    others = one.change.others
    names = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
    return (
        f"{one.client.title} still has other servers ({names}). If they are behind mcp-optimizer too, their tools are "
        f"listed twice: mcp-optimizer import {one.client.name} --move"
    )


def _diff(change: FileChange, name: str) -> list[str]:
    from mcp_optimizer.clients.preview import shown_change

    ours = [name, change.entry, change.restored]
    return shown_change(change.before, change.text, str(change.place.path), change.place.kind, ours)


def _as_json(one: ClientOutcome, dry_run: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"client": one.client.name, "status": one.status}
    if one.change is not None:
        shown |= {"file": str(one.change.place.path), "other_servers": list(one.change.others)}
        if dry_run and one.is_open:
            shown["diff"] = _diff(one.change, one.change.name)
    if one.command:
        shown["command"] = list(one.command)
    return shown | ({"note": one.note} if one.note else {})
