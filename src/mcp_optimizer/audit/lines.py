"""Entries as lines of JSON, each with the hash of the one before, so that removed and changed lines are noticed. Pure.

Every process writes its own chain, because several write to one file. The first line of a chain has the hash of the
line that stood before it, whoever wrote that.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mcp_optimizer.domain.audit import AuditEntry

_COMPACT = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Chain:
    """Where a process is in its chain: the number of its next line, and the hash of its last one."""

    id: str
    number: int
    previous: str

    @classmethod
    def begun(cls, after: bytes) -> Chain:
        """A new one, after a line of another."""
        return cls(secrets.token_hex(8), 0, hash_of(after) if after else "")

    def written(self, entries: Sequence[AuditEntry]) -> tuple[bytes, Chain]:
        """The lines of these entries, and the chain after them."""
        previous, lines = self.previous, list[bytes]()
        for number, entry in enumerate(entries, start=self.number):
            line = _line(entry, self.id, number, previous)
            previous = hash_of(line)
            lines += (line, b"\n")
        return b"".join(lines), Chain(self.id, self.number + len(entries), previous)


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def values_of(entry: AuditEntry) -> dict[str, Any]:
    """An entry as programs read it: the moment in words, and arguments only if they were kept."""
    values = entry._asdict()
    moment = datetime.fromtimestamp(values.pop("at_ms") / 1_000, UTC)
    if entry.arguments is None:
        del values["arguments"]
    return {"at": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"), **values}


def _line(entry: AuditEntry, chain: str, number: int, previous: str) -> bytes:
    values = values_of(entry)
    values |= {"chain": chain, "number": number, "previous": previous}
    # ASCII only: no character of a name can end the line, or tell a terminal what to do.
    return _COMPACT.encode(values).replace("\x7f", "\\u007f").encode("ascii")
