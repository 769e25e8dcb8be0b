"""How the pins of servers stand, for `trust list` and the dashboard. Pure: from pins to values that can be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_optimizer.domain.pins import INSTRUCTIONS, Pins, ServerPin, ToolChange, ToolPin, TrustMode
from mcp_optimizer.trust.checks import Key, clones, notes_on
from mcp_optimizer.trust.pins import unpacked

APPROVED = "approved"


@dataclass(frozen=True)
class ToolOverview:
    """A pinned tool, or a server's instructions: the state (approved, changed, new, server changed), since when, and
    notes on it.
    """

    name: str
    state: str
    since_ms: int
    by: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerOverview:
    """A server with pins: its mode, if it is known, what it was approved as, and what it is now if that changed."""

    name: str
    mode: TrustMode | None
    approved: ServerPin
    waiting: ServerPin | None
    tools: tuple[ToolOverview, ...]
    instructions: ToolOverview | None = None
    """None if it has none."""

    @property
    def unapproved(self) -> list[ToolOverview]:
        """Tools, and perhaps the instructions, that somebody has to look at."""
        found = self.tools if self.instructions is None else (self.instructions, *self.tools)
        return [one for one in found if one.state != APPROVED]


def overview(pins: Mapping[str, Pins], modes: Mapping[str, TrustMode]) -> list[ServerOverview]:
    """All servers that have pins, by name."""
    current = {(server, name): unpacked(pin) for server, found in pins.items() for name, pin in _current(found)}
    alike = clones((key, _text(tool.get("description"))) for key, tool in current.items())
    servers = []
    for server, found in sorted(pins.items()):
        if found.approved is None:
            continue
        pinned = [
            ToolOverview(name, _state(name, found), pin.at_ms, pin.by, _notes((server, name), current, alike))
            for name, pin in _current(found)
        ]
        tools = tuple(one for one in pinned if one.name != INSTRUCTIONS)
        said = next(
            (one for one in pinned if one.name == INSTRUCTIONS and current[server, one.name].get("instructions", True)),
            None,
        )
        servers.append(ServerOverview(server, modes.get(server), found.approved, found.waiting, tools, said))
    return servers


def _current(pins: Pins) -> Iterable[tuple[str, ToolPin]]:
    """Each tool as it is now, as far as anybody knows."""
    seen = {name: pin for name, pin in pins.tools.items() if pin.hash}
    return sorted({**seen, **pins.waiting_tools}.items())


def _state(name: str, pins: Pins) -> str:
    if name in pins.waiting_tools:
        return ToolChange.CHANGED if name in pins.tools else ToolChange.NEW
    return ToolChange.SERVER if pins.waiting is not None else APPROVED


def _notes(key: Key, tools: Mapping[Key, Mapping[str, object]], alike: Mapping[Key, list[str]]) -> tuple[str, ...]:
    return (*notes_on(tools[key]), *alike.get(key, ()))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
