"""How the audit is kept, in its own terms. Made from the settings by the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AuditOptions:
    """Where entries go, how much of them, and for how long."""

    file: Path | None = None
    """None: only the table."""
    megabytes: float = 10.0
    """The size from which a file is put aside."""
    files: int = 5
    """How many that were put aside are kept."""
    days: float = 365.0
    """How long the table keeps an entry."""
    arguments: bool = False
    """Whether entries contain arguments."""
