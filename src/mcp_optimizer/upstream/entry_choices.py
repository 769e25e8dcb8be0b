"""Reads what an entry chooses: which tools are used, how long a call may take, what happens to tools that change.

Pure; called where entries become specs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.errors import quoted
from mcp_optimizer.textfiles.checked_values import UnusableEntry
from mcp_optimizer.upstream.selection import ALL, ToolSelection

_USED = ("tools", "includeTools", "enabledTools")
_TURNED_OFF = ("excludeTools", "disabledTools")

# Existing files give seconds (Cline: at most 3,600) or milliseconds (Gemini CLI: 600,000).
_LONGEST_IN_SECONDS = 3_600
_LONGEST = 10**12


def timeout_of(value: Any) -> float | None:
    """Seconds that a call may take."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONGEST:
        raise UnusableEntry(f'"timeout" must be a positive number of seconds, not {quoted(value)}')
    return value / 1000 if value > _LONGEST_IN_SECONDS else float(value)


def tools_of(entry: Mapping[str, Any]) -> ToolSelection:
    """Which tools are used. Tools turned off in another client's file are turned off here too."""
    used = _tool_names(entry, _USED)
    return ToolSelection(ALL if used is None else tuple(used), tuple(_tool_names(entry, _TURNED_OFF) or ()))


def trust_of(entry: Mapping[str, Any]) -> TrustMode | None:
    """What happens when its tools change. Gemini CLI's key of that name is true or false, and means something else."""
    said = entry.get("trust")
    if said is None or isinstance(said, bool):
        return None
    if said not in list(TrustMode):
        raise UnusableEntry(f'"trust" must be one of {", ".join(TrustMode)}')
    return TrustMode(said)


def _tool_names(entry: Mapping[str, Any], keys: Sequence[str]) -> list[str] | None:
    """The names under some keys; None if none of the keys is there."""
    found: list[str] | None = None
    for key in keys:
        if (value := entry.get(key)) is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UnusableEntry(f'"{key}" must be a list of tool names')
        found = [*(found or []), *value]
    return found
