"""Makes pins of tools and servers, compares listings with them, and defines their store.

Called by `pin_keeper`. A pin covers every field that the server sends, because every field can reach a model; the order
of keys and lists does not count. Pins are stored in the database, or in memory without one.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pydantic_core

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.pins import (
    INSTRUCTIONS,
    NO_MARK,
    Mark,
    Pins,
    ServerPin,
    ToolChange,
    ToolPin,
    read_of,
    seen_first,
)
from mcp_optimizer.domain.tools import Definition

_PLACES = frozenset({"prefixItems", "items", "const"})
"""Keywords whose lists have a meaningful order: it decides whether a value is valid."""

_OLDER_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_OLDER_SETS = frozenset({"required", "enum", "type"})
"""The fields that gateways before schema 0015 compared, and the lists whose order they ignored."""

_LONGEST_SHOWN = 2_000


@dataclass(frozen=True)
class Verdict:
    """The differences between a listing and what was approved."""

    is_other_server: bool = False
    changes: Mapping[str, ToolChange] = field(default_factory=dict)
    """Changed and new tools by name."""
    gone: tuple[str, ...] = ()
    """Approved tools that are not listed now. One that returns unchanged needs no new approval."""
    first_seen: tuple[str, ...] = ()
    """Items that were not visible when the server was approved: tools that were turned off then, and, if the pins are
    from an older gateway, the instructions and further fields of tools.
    """
    reordered: tuple[str, ...] = ()
    """Tools that are the same except for order: their approved definitions are used."""


def instructions_of(text: str) -> Definition:
    """A server's instructions as a definition, which can be pinned."""
    return Definition.packing(INSTRUCTIONS, json.dumps({"instructions": read_of(text)}))


_NOTHING_SAID = instructions_of("")


def pin_of(definition: Definition, by: str = "") -> ToolPin:
    """The pin of a tool, as stored."""
    wire = zlib.compress(definition.wire_json.encode("utf-8", "surrogatepass"))
    return ToolPin(_older_hash(definition), wire, by, 0, _whole_hash(definition), definition.definition_hash)


def unpacked(pin: ToolPin) -> dict[str, Any]:
    """The definition in a pin, with lists in an order independent of the server; empty if the pin has none."""
    if not pin.definition:
        return {}
    text = zlib.decompress(pin.definition).decode("utf-8", "surrogatepass")
    try:
        read: dict[str, Any] = _unordered(pydantic_core.from_json(text))
    except ValueError:
        return {"unreadable": text}
    return read


def as_approved(name: str, pin: ToolPin) -> Definition | None:
    """The definition that was approved, byte for byte; None if the pin does not have it."""
    if not pin.definition:
        return None
    definition = Definition.packing(name, zlib.decompress(pin.definition).decode("utf-8", "surrogatepass"))
    return definition if definition.definition_hash == pin.sent else None


def identity_of(spec: ServerSpec) -> ServerPin:
    """The identity of a server: its command or URL, independent of its environment, headers and secrets."""
    redacted = Redactor(spec).text
    is_child = spec.transport is Transport.STDIO
    parts = [redacted(spec.without_secrets(part)) for part in ((spec.command, *spec.args) if is_child else (spec.url,))]
    shown = shlex.join(parts) if is_child else parts[0]
    return ServerPin(_hash(json.dumps(parts)), shown[:_LONGEST_SHOWN])


def compare(pins: Pins, server: ServerPin, listed: Iterable[Definition]) -> Verdict:
    """Find the changes since the approval. `listed`: the server's tools and its instructions."""
    if pins.approved is None:
        return Verdict()
    changes: dict[str, ToolChange] = {}
    first_seen, reordered, names = [], [], set()
    for definition in listed:
        name, approved = definition.name, pins.tools.get(definition.name)
        names.add(name)
        if approved is not None and approved.sent == definition.definition_hash:
            # The same bytes, as nearly always.
            continue
        if approved is not None and definition == _NOTHING_SAID:
            continue
        if approved is None and name != INSTRUCTIONS:
            changes[name] = ToolChange.NEW
        elif approved is None or not approved.hash:
            first_seen.append(name)
        elif approved.whole:
            if approved.whole == _whole_hash(definition):
                reordered.append(name)
            else:
                changes[name] = ToolChange.CHANGED
        elif approved.hash == _older_hash(definition):
            first_seen.append(name)
        else:
            changes[name] = ToolChange.CHANGED
    gone = tuple(name for name, pin in pins.tools.items() if pin.hash and name not in names)
    is_other = pins.approved.identity != server.identity
    return Verdict(is_other, changes, gone, tuple(first_seen), tuple(reordered))


def baseline(definitions: Iterable[Definition], turned_off: Iterable[str]) -> dict[str, ToolPin]:
    """The pins of a server's first listing, which counts as approved."""
    pins = {name: ToolPin("", by="baseline") for name in turned_off}
    return pins | {definition.name: pin_of(definition, "baseline") for definition in definitions}


def _whole_hash(definition: Definition) -> str:
    return _hash(_canonical(definition, _unordered))


def _older_hash(definition: Definition) -> str:
    return _hash(_canonical(definition, _older_form))


def _canonical(definition: Definition, form: Callable[[dict[str, Any]], Any]) -> str:
    try:
        return _written(form(pydantic_core.from_json(definition.wire_json)))
    except ValueError:
        # Numbers with thousands of digits, or lone surrogates, which only a hostile server sends.
        return _written({"name": definition.name, "unreadable": definition.definition_hash})


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _unordered(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _unordered(item, name) for name, item in value.items()}
    if isinstance(value, list):
        items = [_unordered(item) for item in value]
        return items if key in _PLACES or len(items) < 2 else sorted(items, key=_place)
    return value


def _place(item: Any) -> str:
    """The sort key for list items. Plain values avoid JSON, which is slow for a hundred thousand of them."""
    return _written(item) if isinstance(item, dict | list) else f"{type(item).__name__} {item!r}"


def _older_form(tool: dict[str, Any]) -> Any:
    return _older_order({key: tool[key] for key in _OLDER_FIELDS if key in tool})


def _older_order(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _older_order(item, name) for name, item in value.items()}
    if isinstance(value, list):
        if key in _OLDER_SETS and all(isinstance(item, str) for item in value):
            return sorted(value)
        return [_older_order(item) for item in value]
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def pins_by_name(definitions: Sequence[Definition]) -> dict[str, ToolPin]:
    return {definition.name: pin_of(definition) for definition in definitions}


def versions_of(tools: Mapping[str, ToolPin]) -> dict[str, str]:
    """A version for each pin, by name, that identifies exactly its definition."""
    return {name: pin.version for name, pin in tools.items()}


class PinStore(Protocol):
    """The pins of all servers. Each method does all of its work or none."""

    async def read(self, server: str) -> Pins:
        """All pins of a server, possibly without the tools' definitions, which are the largest part."""
        ...

    async def whole(self, server: str) -> Pins:
        """All pins of a server, with the tools' definitions."""
        ...

    async def servers(self) -> list[str]:
        """The servers that have pins."""
        ...

    async def marks(self, servers: Collection[str]) -> dict[str, Mark]:
        """A value per server that changes with every approval."""
        ...

    async def begin(self, server: str, pin: ServerPin, tools: Mapping[str, ToolPin]) -> Pins:
        """Make this the baseline of a server, unless it has one. Returns the pins that are in force."""
        ...

    async def adopt(self, server: str, tools: Mapping[str, ToolPin]) -> None:
        """Approve items that were not visible before, when they are first seen: see `seen_first`."""
        ...

    async def wait(self, server: str, pin: ServerPin | None, tools: Mapping[str, ToolPin]) -> None:
        """Replace everything of a server that waits for approval by this."""
        ...

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        """Approve waiting tools by name, and a changed command or URL, each only if it is still that version."""
        ...

    async def reset(self, server: str) -> bool:
        """Forget a server: its next listing is the new baseline."""
        ...


class PinsInMemory:
    """Pins that last as long as the process."""

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
