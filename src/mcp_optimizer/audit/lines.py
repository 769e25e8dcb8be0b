"""Entries as lines of JSON, each with the hash of the one before, so that removed and changed lines are noticed. Pure.

Every process writes its own chain, because several write to one file. The first line of a chain has the hash of the
line that stood before it, whoever wrote that. So has the first line that a chain has in another file (`after`): when
older files are gone, it shows that the chain did not begin in the middle of this one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.largejson.text import compact_bytes

_ASCII = json.JSONEncoder(separators=(",", ":"))
_KEYS = ("at", *AuditEntry._fields[1:])


@dataclass(frozen=True)
class Chain:
    """Where a process is in its chain: the number of its next line, and the hash of its last one."""

    id: str
    number: int
    previous: str
    after: str | None = None
    """The hash of the line before the next one, whoever wrote it; None if that is in the same file as our last one."""

    @classmethod
    def begun(cls) -> Chain:
        """A new one."""
        return cls(secrets.token_hex(8), 0, "")

    def placed(self, after: bytes) -> Chain:
        """Begun, or continued in another file, after this line; without one, nobody knows which."""
        found = hash_of(after) if after else ""
        return replace(self, after=found) if self.number else replace(self, previous=found)

    def written(self, entries: Sequence[AuditEntry]) -> tuple[bytes, Chain]:
        """The lines of these entries, and the chain after them."""
        previous, lines = self.previous, list[bytes]()
        for number, entry in enumerate(entries, start=self.number):
            line = _line(entry, self.id, number, previous, self.after if number == self.number else None)
            previous = hash_of(line)
            lines += (line, b"\n")
        return b"".join(lines), Chain(self.id, self.number + len(entries), previous)


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def values_of(entry: AuditEntry) -> dict[str, Any]:
    """An entry as programs read it: the moment in words, and arguments only if they were kept."""
    values: dict[str, Any] = dict(zip(_KEYS, entry, strict=True))
    seconds, further = divmod(entry.at_ms, 1_000)
    values["at"] = f"{_second(seconds)}.{further:03}Z"
    if entry.arguments is None:
        del values["arguments"]
    return values


@lru_cache(maxsize=2)
def _second(number: int) -> str:
    """A second since 1970 in words; all entries of a batch are of the same one or two."""
    return datetime.fromtimestamp(number, UTC).replace(tzinfo=None).isoformat()


def _line(entry: AuditEntry, chain: str, number: int, previous: str, after: str | None) -> bytes:
    values = values_of(entry)
    values["chain"], values["number"], values["previous"] = chain, number, previous
    if after is not None:
        values["after"] = after
    line = compact_bytes(values)
    if not line.isascii():
        # No character of a name can end the line, or tell a terminal what to do.
        line = _ASCII.encode(values).encode("ascii")
    return line.replace(b"\x7f", b"\\u007f")
