"""The audit entry of one act: who did what, what allowed it, and how it ended. Frozen values; `access/audit` writes
them.

An entry never contains a result, and arguments only if a setting allows it. Its texts may come from anyone: they are
cut in this module, and made harmless where they are written or shown.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

LONGEST_TEXT = 300
"""Maximum characters of each text of an entry."""

LONGEST_ARGUMENTS = 10_000
"""Maximum characters of the arguments."""

_LARGEST = 2**53


class AuditEntry(NamedTuple):
    """One act. The fields are those of the table, in its order.

    A named tuple, because one is made for every call and a frozen dataclass takes ten times as long.
    """

    at_ms: int
    """Milliseconds since 1970 at the beginning of the act."""
    caller: str = "local"
    """The name of the verified principal."""
    tenant: str = ""
    client: str = ""
    """The client's own, unverified name for itself."""
    session: str = ""
    """Identifies the conversation as in history, but not its owner."""
    method: str = ""
    """The protocol's method, or an administrative act: `secret/set`, `login/made`."""
    server: str = ""
    tool: str = ""
    """The own name of a tool on its server, a prompt's name, a resource's URI, or an administered object's name."""
    risk: str = ""
    decision: str = "allow"
    rule: str = ""
    """The rule or default that decided."""
    approved_by: str = ""
    """Who approved it, if approval was required."""
    outcome: str = "ok"
    arguments_bytes: int = 0
    arguments_hash: str = ""
    arguments: str | None = None
    result_tokens: int = 0
    result_hash: str = ""
    milliseconds: float = 0.0
    definition_hash: str = ""
    trace_id: str = ""


class Trail(Protocol):
    """Where acts are recorded."""

    def add(self, entry: AuditEntry) -> None:
        """Accepts an entry. Returns at once, and never raises for later failures."""
        ...


def bounded(entry: AuditEntry) -> AuditEntry:
    """The entry with all texts cut to the length that can be stored."""
    if entry.arguments is None and _fits(entry):
        return entry
    cut = AuditEntry(*map(_bounded, entry))
    return cut if entry.arguments is None else cut._replace(arguments=_cut(entry.arguments, LONGEST_ARGUMENTS))


def _fits(entry: AuditEntry) -> bool:
    """Whether nothing has to be cut, as in nearly every entry: all texts from the caller to the outcome are together no
    longer than a single one may be.
    """
    return (
        len("".join(entry[1:13])) <= LONGEST_TEXT
        and len(entry.arguments_hash) <= LONGEST_TEXT
        and len(entry.result_hash) <= LONGEST_TEXT
        and len(entry.definition_hash) + len(entry.trace_id) <= LONGEST_TEXT
        and 0 <= entry.at_ms <= _LARGEST
        and 0 <= entry.arguments_bytes <= _LARGEST
        and 0 <= entry.result_tokens <= _LARGEST
        and 0 <= entry.milliseconds <= _LARGEST
    )


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else _cut(value, LONGEST_TEXT)
    if value is None:
        return None
    return max(0, min(value, _LARGEST)) if math.isfinite(value) else 0.0


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
