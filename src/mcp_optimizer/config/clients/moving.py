"""Switches servers off in the file of a client that no longer needs them, so that their tools are not listed twice.

Pure: text in, text out. Called by the command, which keeps a copy of the file and writes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_optimizer.config.clients.documents import ListedEntry
from mcp_optimizer.config.clients.finding import FoundFile
from mcp_optimizer.config.known_clients.program import KeyPath, SwitchOff
from mcp_optimizer.config.textfiles.editing import with_value, without_item, without_value
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed


def switched_off(file: FoundFile, entries: Iterable[ListedEntry]) -> str:
    """The text of a client's file with these servers switched off, or without them if the client cannot do that.

    Raises CannotEdit where other parts of the file would change.
    """
    text, kind, how = file.text, file.place.kind, file.client.switch_off
    # The last item of a list first: removing an item shifts those after it.
    for entry in sorted(entries, key=lambda one: -1 if one.index is None else -one.index):
        if entry.index is not None:
            text = without_listed(text, kind, entry.at, entry.index)
        elif how is SwitchOff.DISABLED:
            text = with_value(text, kind, (*entry.at, "disabled"), True)
        elif how is SwitchOff.ENABLED:
            text = with_value(text, kind, (*entry.at, "enabled"), False)
        elif how is SwitchOff.EXCLUDED:
            text = _excluded(text, kind, entry.name)
        else:
            text = without_value(text, kind, entry.at)
    return text


def without_listed(text: str, kind: FileKind, at: KeyPath, index: int) -> str:
    """The text without an item of a list. An emptied list stays a list: Continue refuses a null."""
    text = without_item(text, kind, at, index)
    holder = parsed(text, kind) or {}
    for key in at[:-1]:
        holder = holder.get(key) or {}
    return with_value(text, kind, at, []) if at[-1] in holder and holder[at[-1]] is None else text


def _excluded(text: str, kind: FileKind, name: str) -> str:
    """Gemini CLI's file with a server added to its list of excluded ones."""
    mcp = parsed(text, kind).get("mcp")
    there = mcp.get("excluded") if isinstance(mcp, dict) else None
    names = there if isinstance(there, list) else []
    return text if name in names else with_value(text, kind, ("mcp", "excluded"), [*names, name])
