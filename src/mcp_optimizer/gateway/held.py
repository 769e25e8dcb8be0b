"""What the gateway says about tools that wait for approval: to whoever calls one, and in the notes of a reply. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from mcp_optimizer.domain.pins import HeldTool, ToolChange
from mcp_optimizer.errors import ToolHeld, listed, quoted

_MOST_NAMED = 3
_PLAIN = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
"""Names that can be shown in a command: a server chooses its tools' names, and a person may paste what is shown."""

_WHY = {
    ToolChange.CHANGED: "it changed since it was approved",
    ToolChange.NEW: "it was added after the tools of its server were approved",
    ToolChange.SERVER: "the command or URL of its server changed since it was approved",
    ToolChange.UNKNOWN: "its server's approvals cannot be read from the database; the gateway tries again",
}


def held_error(tool: HeldTool) -> ToolHeld:
    """Why a held tool cannot be called, and what a person can do about it."""
    server = shlex.quote(tool.server) if tool.server.isprintable() else "SERVER"
    name = tool.name if _PLAIN.fullmatch(tool.name) else "TOOL"
    date = f" ({datetime.fromtimestamp(tool.approved_at_ms / 1000, UTC).date().isoformat()})"
    why = _WHY[tool.change] + ("" if tool.change is ToolChange.UNKNOWN else date)
    is_server = tool.change is ToolChange.SERVER
    see = f"mcp-optimizer trust diff {server}" + ("" if is_server else f" {name}")
    approve = f"mcp-optimizer trust approve {server} {'--all' if is_server else name} --shown VERSION"
    return ToolHeld(tool.server, tool.name, why, see, approve)


def waiting_note(held: Iterable[HeldTool]) -> str:
    """How many tools of which servers wait; empty if none does."""
    counts = Counter(tool.server for tool in held)
    said = [f"{count:,} of {quoted(server)}" for server, count in counts.most_common()]
    return f"Tools that wait for the user's approval: {listed(said, _MOST_NAMED)}." if said else ""
