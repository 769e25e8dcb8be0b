"""Where pins are kept: the database, or memory without one. Called by the keeper; knows no server and no client."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from mcp_optimizer.domain.pins import NO_MARK, Mark, Pins, ServerPin, ToolPin, seen_first


class PinStore(Protocol):
    """The pins of all servers. Each method does all of its work or none."""

    async def read(self, server: str) -> Pins:
        """All pins of a server, perhaps without the tools' definitions, which are most of it."""
        ...

    async def whole(self, server: str) -> Pins:
        """All pins of a server, with the tools' definitions."""
        ...

    async def servers(self) -> list[str]:
        """The servers that have pins."""
        ...

    async def marks(self, servers: Collection[str]) -> dict[str, Mark]:
        """What changes with every approval, by server."""
        ...

    async def begin(self, server: str, pin: ServerPin, tools: Mapping[str, ToolPin]) -> Pins:
        """Make this the baseline of a server, unless it has one. Returns what is approved then."""
        ...

    async def adopt(self, server: str, tools: Mapping[str, ToolPin]) -> None:
        """Approve what nobody could look at before, the first time it is seen: see `seen_first`."""
        ...

    async def wait(self, server: str, pin: ServerPin | None, tools: Mapping[str, ToolPin]) -> None:
        """Exactly this waits for approval now."""
        ...

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        """Approve waiting tools by name, and another command or URL, each only if it is still that version."""
        ...

    async def reset(self, server: str) -> bool:
        """Forget a server: its next listing is the baseline."""
        ...


class PinsInMemory:
    """Pins that end with the process."""

    def __init__(self) -> None:
        self._pins: dict[str, Pins] = {}

    async def read(self, server: str) -> Pins:
        return self._pins.get(server, Pins())

    async def whole(self, server: str) -> Pins:
        return self._pins.get(server, Pins())

    async def servers(self) -> list[str]:
        return sorted(self._pins)

    async def marks(self, servers: Collection[str]) -> dict[str, Mark]:
        return {server: self._pins[server].mark if server in self._pins else NO_MARK for server in servers}

    async def begin(self, server: str, pin: ServerPin, tools: Mapping[str, ToolPin]) -> Pins:
        if self._pins.get(server, Pins()).approved is None:
            self._pins[server] = Pins(replace(pin, at_ms=_now()), _now_approved(tools))
        return self._pins[server]

    async def adopt(self, server: str, tools: Mapping[str, ToolPin]) -> None:
        known = self._pins[server]
        self._pins[server] = replace(known, tools={**known.tools, **_now_approved(seen_first(known.tools, tools))})

    async def wait(self, server: str, pin: ServerPin | None, tools: Mapping[str, ToolPin]) -> None:
        known = self._pins.get(server, Pins())
        before = known.waiting_tools
        kept = {
            name: known_pin
            if (known_pin := before.get(name)) is not None and known_pin.version == found.version
            else replace(found, at_ms=_now())
            for name, found in tools.items()
        }
        self._pins[server] = replace(known, waiting=pin and replace(pin, at_ms=_now()), waiting_tools=kept)

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        known = self._pins.get(server, Pins())
        approved = {
            name: replace(pin, by=by, at_ms=0)
            for name, pin in known.waiting_tools.items()
            if tools.get(name) == pin.version
        }
        is_all = known.waiting is not None and known.waiting.identity == identity
        self._pins[server] = Pins(
            known.waiting if is_all else known.approved,
            {**known.tools, **_now_approved(approved)},
            None if is_all else known.waiting,
            {name: pin for name, pin in known.waiting_tools.items() if name not in approved},
        )
        return sorted(approved)

    async def reset(self, server: str) -> bool:
        return self._pins.pop(server, None) is not None


def _now_approved(tools: Mapping[str, ToolPin]) -> dict[str, ToolPin]:
    now = _now()
    return {name: replace(pin, at_ms=pin.at_ms or now) for name, pin in tools.items()}


def _now() -> int:
    return time.time_ns() // 1_000_000
