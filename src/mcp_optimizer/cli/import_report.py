"""What `import` prints: for people file by file, for programs as JSON. Names and reasons, never values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer.cli.terminal import console, print_json, say_next
from mcp_optimizer.config.clients.files import FoundFile
from mcp_optimizer.config.clients.importing import ImportOutcome, ImportPlan, PlannedEntry
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable

if TYPE_CHECKING:
    from rich.console import Console

    from mcp_optimizer.cli.importing import ImportChoices, PlannedMove, RulesToWrite
    from mcp_optimizer.config.known_clients.program import ClientProgram
    from mcp_optimizer.domain.caller import Rule

_SIGNS = {ImportOutcome.TAKEN: "+", ImportOutcome.SKIPPED: "-", ImportOutcome.REFUSED: "!"}
_WIDEST = 28


def report(
    plan: ImportPlan,
    target: Path,
    choices: ImportChoices,
    *,
    rules: RulesToWrite,
    is_stored: bool = False,
    moved: Sequence[PlannedEntry] = (),
    problems: Sequence[str] = (),
) -> None:
    """Print what was done, or what would be done."""
    if choices.as_json:
        print_json(_as_json(plan, target, choices, rules, is_stored, moved, problems))
        return
    out = console()
    for file in plan.files:
        _show_file(out, file, plan)
    _say(out, _summary(plan, target, choices))
    literal = [] if is_stored else [name for entry in plan.taken for name in entry.secrets]
    if literal:
        done = "would be copied" if choices.dry_run else "were copied"
        _say(out, f"Secrets that {done} as they are: {', '.join(literal)}. --store-secrets keeps them encrypted.")
    elif is_stored:
        stored = [name for entry in plan.taken for name in entry.secrets]
        _say(out, f"Stored encrypted: {', '.join(stored)}.")
    if left := [f"{entry.name} ({', '.join(entry.left)})" for entry in plan.taken if entry.left]:
        _say(
            out,
            f"Looks like a secret and cannot be stored by itself: {', '.join(left)}. Store it with `mcp-optimizer "
            "secret set NAME`, and write ${secret:NAME} in its place.",
        )
    if rules.rules:
        done = "Would write" if choices.dry_run else "Wrote"
        said = "; ".join(_rule(one) for one in rules.rules)
        _say(out, f"{done} what clients refuse or ask about as rules for every client to {rules.path}: {said}.")
    for one in rules.left:
        _say(out, f"Not carried over: {one}.")
    for client, how, names in _moved_from(moved):
        _say(
            out, f"{how} {client.title}'s file: {names}. To put back: mcp-optimizer disconnect {client.name} --restore"
        )
    for problem in problems:
        _say(out, problem)
    if not plan.taken:
        return
    if choices.dry_run:
        say_next("mcp-optimizer import   (the same without --dry-run)")
    else:
        say_next("mcp-optimizer doctor   (starts each server once, and says what it costs)")


def show_moves(moves: Sequence[PlannedMove], rules: RulesToWrite) -> None:
    """Show the changes of clients' files before they are made, and the rules."""
    from mcp_optimizer.config.clients.applying import shown_change

    out = console()
    for move in moves:
        place = move.file.place
        out.print(f"{move.file.client.title}: {place.path}", markup=False, soft_wrap=True)
        ours = ["disabled", "enabled", *(entry.listed.name for entry in move.entries)]
        for line in shown_change(move.file.text, move.text, str(place.path), place.kind, ours):
            out.print(f"  {printable(line)}", markup=False, soft_wrap=True)
    for rule in rules.rules:
        _say(out, f"  rule in {rules.path}: {_rule(rule)}")


def _rule(rule: Rule) -> str:
    return f"{rule.effect} {rule.server}/{rule.tool}"


def _moved_from(moved: Sequence[PlannedEntry]) -> Iterator[tuple[ClientProgram, str, str]]:
    """The clients, what happened in their files, and to which servers."""
    from mcp_optimizer.config.known_clients.program import SwitchOff

    for client in dict.fromkeys(entry.file.client for entry in moved):
        is_gone = client.switch_off is SwitchOff.REMOVED
        names = ", ".join(entry.listed.name for entry in moved if entry.file.client is client)
        yield client, "Removed from" if is_gone else "Switched off in", names


def _say(out: Console, text: str) -> None:
    out.print(in_a_line(text), markup=False, soft_wrap=True)


def _show_file(out: Console, file: FoundFile, plan: ImportPlan) -> None:
    entries = [entry for entry in plan.entries if entry.file is file]
    notes = [note for path, note in plan.notes if path == file.place.path]
    if not entries and not notes:
        return
    from rich.table import Table
    from rich.text import Text

    _say(out, f"{file.client.title}: {file.place.path}")
    rows = Table.grid(padding=(0, 1), pad_edge=True)
    rows.add_column(no_wrap=True)
    rows.add_column(max_width=_WIDEST)
    rows.add_column(overflow="fold")
    for entry in entries:
        said = map(in_a_line, (_outcome(entry), *entry.notes))
        rows.add_row(_SIGNS[entry.outcome], Text(in_a_line(entry.listed.name)), Text("\n".join(said)))
    for note in notes:
        rows.add_row(_SIGNS[ImportOutcome.REFUSED], "", Text(in_a_line(note)))
    out.print(rows)


def _outcome(entry: PlannedEntry) -> str:
    if entry.outcome is ImportOutcome.TAKEN:
        return "taken" if entry.name == entry.listed.name else f"taken as {entry.name}"
    return f"{entry.outcome}: {entry.reason}"


def _summary(plan: ImportPlan, target: Path, choices: ImportChoices) -> str:
    if not plan.files:
        return "No files of known clients were found here. Name a file: mcp-optimizer import FILE."
    taken = counted(len(plan.taken), "server")
    if not plan.taken:
        return "Nothing to add."
    return f"Would add {taken} to {target}." if choices.dry_run else f"Added {taken} to {target}."


def _as_json(
    plan: ImportPlan,
    target: Path,
    choices: ImportChoices,
    rules: RulesToWrite,
    is_stored: bool,
    moved: Sequence[PlannedEntry],
    problems: Sequence[str],
) -> dict[str, Any]:
    return {
        "file": str(target),
        "written": bool(plan.taken) and not choices.dry_run,
        "servers": [
            {
                "client": entry.file.client.name,
                "from": str(entry.file.place.path),
                "name": entry.listed.name,
                "as": entry.name,
                "outcome": entry.outcome.value,
                "reason": entry.reason,
                "notes": list(entry.notes),
                "secrets": list(entry.secrets),
                "secrets_left": list(entry.left),
                "secrets_stored": is_stored and bool(entry.secrets),
                "moved": any(one is entry or one.listed is entry.listed for one in moved),
            }
            for entry in plan.entries
        ],
        "files": [{"from": str(path), "note": note} for path, note in plan.notes],
        "rules": [
            {"effect": one.effect.value, "server": one.server, "tool": one.tool, "reason": one.reason}
            for one in rules.rules
        ],
        "not_carried": list(rules.left),
        "problems": list(problems),
    }
