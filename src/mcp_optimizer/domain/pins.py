"""What servers and tools were when they were approved, and what is held back because it changed. Frozen values.

`trust` compares, `db` stores, the catalog leaves out what is held, and the gateway says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mcp_optimizer.domain.tools import Definition


class TrustMode(StrEnum):
    """What happens to tools of a server that changed, or are new, since its tools were approved."""

    OFF = "off"
    """Nothing: nobody looks."""
    WARN = "warn"
    """They are used and reported."""
    BLOCK = "block"
    """They are neither found nor called until somebody approves them."""


class ToolChange(StrEnum):
    """What happened to a tool since it was approved."""

    CHANGED = "changed"
    NEW = "new"
    SERVER = "server changed"
    """The tool is the same, but its server has another command or URL."""
    UNKNOWN = "unknown"
    """What was approved cannot be read, so nobody can say."""


class PinState(StrEnum):
    """Whether somebody approved what a row of the pins says, or still has to."""

    APPROVED = "approved"
    WAITING = "waiting"


@dataclass(frozen=True)
class ServerPin:
    """What a server is: a hash of its command or URL, and those without secrets, for people."""

    identity: str
    shown: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ToolPin:
    """What a tool is: the hash of its definition, and the definition as compressed JSON.

    Without a hash, it was turned off when its server's tools were approved, and nobody has seen it yet.
    """

    hash: str
    definition: bytes = b""
    by: str = ""
    at_ms: int = 0


@dataclass(frozen=True)
class Pins:
    """All that is stored about one server: what was approved, and what waits for approval."""

    approved: ServerPin | None = None
    tools: Mapping[str, ToolPin] = field(default_factory=dict)
    waiting: ServerPin | None = None
    waiting_tools: Mapping[str, ToolPin] = field(default_factory=dict)

    @property
    def mark(self) -> Mark:
        """Changes with every approval."""
        if self.approved is None:
            return NO_MARK
        return len(self.tools), self.approved.at_ms + sum(pin.at_ms for pin in self.tools.values())


Mark = tuple[int, int]
"""How many tools of a server are approved, and the sum of the moments at which they were."""

NO_MARK: Mark = (0, 0)


@dataclass(frozen=True)
class HeldTool:
    """A listed tool that nobody approved as it is now."""

    server: str
    name: str
    change: ToolChange
    approved_at_ms: int
    """When it was approved as it was before; for a new one, when its server's tools were."""


@dataclass(frozen=True)
class Admitted:
    """What of a server's listing may be found and called, and what is known against the rest."""

    definitions: Sequence[Definition]
    held: Mapping[str, HeldTool] = field(default_factory=dict)
    """Tools that are left out, by their own names."""
    withheld: Sequence[Definition] = ()
    """Their definitions, to be considered again after an approval."""
    announced: Mapping[str, HeldTool] = field(default_factory=dict)
    """Tools that changed and are used all the same."""
