"""Who asks: what results are stored and cached for, and what events name. A value; knows no transport."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """One user of the gateway. Whoever has another `key` sees nothing of what is kept for this one."""

    client: str = ""
    """How the client calls itself; for people to read, and not to be relied on."""
    key: str = "local"
    """What tells callers apart: the process over stdio, a session over HTTP."""


LOCAL = Caller()
