"""Servers and tools as they were approved, and changed ones that are held back. Frozen values.

`access/trust` compares them, `db` stores them, the catalog omits held tools, and the gateway reports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mcp_optimizer.domain.tools import Definition


class TrustMode(StrEnum):
    """How the gateway treats tools of a server that changed, or are new, since its tools were approved."""

    OFF = "off"
    """Changes are not checked."""
    WARN = "warn"
    """They are used and reported."""
    BLOCK = "block"
    """They are neither found nor called until a person approves them."""


class ToolChange(StrEnum):
    """What happened to a tool since it was approved."""

    CHANGED = "changed"
    NEW = "new"
    SERVER = "server changed"
    """The tool is the same, but its server has another command or URL."""
    UNKNOWN = "unknown"
    """The approved definition cannot be read, so the change is unknown."""


INSTRUCTIONS = ""
"""The name under which a server's instructions are pinned next to its tools; no tool can have it."""

_AS = " as "


def own_pins_name(server: str, caller: str) -> str:
    """The name under which a caller's own server is pinned, if its entry acts as each caller."""
    return f"{server}{_AS}{caller}"


def entry_of_pins(name: str) -> str:
    """The entry whose settings hold for what is pinned under a name."""
    return name.partition(_AS)[0]


_INSTRUCTIONS_READ = 1_000


def read_of(instructions: str) -> str:
    """The part of a server's instructions that is searched or shown, and therefore pinned."""
    return instructions[:_INSTRUCTIONS_READ]


class PinState(StrEnum):
    """Whether a stored pin is approved, or waits for approval."""

    APPROVED = "approved"
    WAITING = "waiting"


@dataclass(frozen=True)
class ServerPin:
    """The identity of a server: a hash of its command or URL, and both without secrets, for people."""

    identity: str
    shown: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ToolPin:
    """The identity of a tool, or of a server's instructions: hashes, and the definition as sent, in compressed JSON.

    Without a `hash`, the tool was turned off when its server's tools were approved, and has not been reviewed yet. That
    hash omits the fields that gateways before schema 0015 omitted, which may use the same database.
    """

    hash: str
    definition: bytes = b""
    by: str = ""
    at_ms: int = 0
    whole: str = ""
    """The hash of all fields, regardless of the order of lists and keys; empty if only an older gateway has seen it."""
    sent: str = ""
    """The `definition_hash` of the definition, byte for byte."""

    @property
    def version(self) -> str:
        """Identifies exactly what an approval of this pin covers."""
        return self.whole or self.hash


def seen_first(known: Mapping[str, ToolPin], found: Mapping[str, ToolPin]) -> dict[str, ToolPin]:
    """The found pins that agree with the known ones but say more: about tools that were turned off, instructions, and
    fields that an older gateway ignored. The latter keep their time and their author.
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
    """Everything stored about one server: approved pins, and pins that wait for approval."""

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
"""How many tools of a server are approved, and the sum of their approval times."""

NO_MARK: Mark = (0, 0)


@dataclass(frozen=True)
class HeldTool:
    """A listed tool whose current form is not approved."""

    server: str
    name: str
    change: ToolChange
    approved_at_ms: int
    """When its previous form was approved; for a new tool, when its server's tools were."""


@dataclass(frozen=True)
class Admitted:
    """The part of a server's listing that may be found and called, and the objections to the rest."""

    definitions: Sequence[Definition]
    held: Mapping[str, HeldTool] = field(default_factory=dict)
    """Omitted tools, by their own names."""
    withheld: Sequence[Definition] = ()
    """Their definitions, to be checked again after an approval."""
    announced: Mapping[str, HeldTool] = field(default_factory=dict)
    """Changed tools that are used nevertheless."""
    instructions: str = ""
    """The part of the server's instructions that may be searched and shown."""
    other_instructions: HeldTool | None = None
    """Set if the current instructions are not approved, whether or not they are used."""

    @property
    def is_whole(self) -> bool:
        """Whether there is no objection to any part."""
        return not (self.held or self.announced or self.other_instructions)
