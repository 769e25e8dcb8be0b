"""What servers and tools were when they were approved, and what is held back because it changed. Frozen values.

`trust` compares, `db` stores, the catalog leaves out what is held, and the gateway says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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


INSTRUCTIONS = ""
"""The name under which a server's instructions are pinned, beside its tools, none of which can have it."""

_INSTRUCTIONS_READ = 1_000


def read_of(instructions: str) -> str:
    """As much of a server's instructions as is ever searched or shown, and therefore pinned."""
    return instructions[:_INSTRUCTIONS_READ]


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
    """What a tool is, or a server's instructions: hashes, and the definition as it was sent, as compressed JSON.

    Without a `hash`, it was turned off when its server's tools were approved, and nobody has seen it yet. That hash
    leaves out what gateways before schema 0015 left out, which may use the same database.
    """

    hash: str
    definition: bytes = b""
    by: str = ""
    at_ms: int = 0
    whole: str = ""
    """The hash of all fields, whatever the order of lists and keys; empty if only an older gateway has seen it."""
    sent: str = ""
    """The `definition_hash` of the definition, byte for byte."""

    @property
    def version(self) -> str:
        """Stands for exactly what is approved with it."""
        return self.whole or self.hash


def seen_first(known: Mapping[str, ToolPin], found: Mapping[str, ToolPin]) -> dict[str, ToolPin]:
    """Those of the found pins that say nothing else than the known ones do, and more: of tools that were turned off, of
    instructions, and of fields that an older gateway did not look at. The latter keep their time and their author.
    """
    new: dict[str, ToolPin] = {}
    for name, pin in found.items():
        before = known.get(name)
        if before is None or not before.hash:
            if before is not None or name == INSTRUCTIONS:
                new[name] = pin
        elif not before.whole and before.hash == pin.hash:
            new[name] = replace(pin, by=before.by, at_ms=before.at_ms)
    return new


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
    instructions: str = ""
    """As much of the server's instructions as may be searched and shown."""
    other_instructions: HeldTool | None = None
    """That nobody approved the instructions as they are now, whether or not they are used."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is known against any of it."""
        return not (self.held or self.announced or self.other_instructions)
