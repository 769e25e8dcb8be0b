"""A task of a server that a client asks for through the gateway. A frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KeptTask:
    """Where a task is, whose it is, and how its result is treated."""

    id: str
    caller: str
    """The principal that made the call; no other one can ask for the task."""
    server: str
    own_id: str
    """The id of the task at its server."""
    tool: str
    """The tool's own name there."""
    selection: str
    """The expression that selects the part of the result that is returned."""
    is_unchanged: bool
    """Whether the result is returned as the server sends it."""
    until_ms: int
