"""What counts as the same tool and the same server, and what changed since an approval. Pure; called by the keeper.

A tool is its name, title, description, schemas and annotations. Icons, `_meta` and hints for its execution may change
freely: no model reads them. A server is its command with arguments, or its URL, without secrets: a new token is no new
server.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from mcp_optimizer.domain.pins import Pins, ServerPin, ToolChange, ToolPin
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.upstream.redaction import Redactor
from mcp_optimizer.upstream.spec import ServerSpec, Transport

_COUNTED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_UNORDERED = frozenset({"required", "enum", "type"})
"""Keywords whose lists are sets: some servers send them in another order at every start."""

_LONGEST_SHOWN = 2_000


@dataclass(frozen=True)
class Verdict:
    """What a listing has that was not approved."""

    is_other_server: bool = False
    changes: Mapping[str, ToolChange] = field(default_factory=dict)
    """Changed and new tools by name."""
    gone: tuple[str, ...] = ()
    """Approved tools that are not listed now. One that comes back unchanged is the same."""
    first_seen: tuple[str, ...] = ()
    """Tools that were turned off when their server was approved: nobody could look at them then."""


def definition_hash(definition: Definition) -> str:
    """The same for two definitions that a model reads alike."""
    return _hash(_canonical(definition))


def pin_of(definition: Definition, by: str = "") -> ToolPin:
    """What is stored of a tool."""
    text = _canonical(definition)
    return ToolPin(_hash(text), zlib.compress(text.encode()), by)


def unpacked(pin: ToolPin) -> dict[str, Any]:
    """The definition in a pin; empty if it has none."""
    read: dict[str, Any] = json.loads(zlib.decompress(pin.definition)) if pin.definition else {}
    return read


def identity_of(spec: ServerSpec) -> ServerPin:
    """What a server is, whatever its environment, its headers and its secrets are."""
    redacted = Redactor(spec).text
    is_child = spec.transport is Transport.STDIO
    parts = [redacted(spec.without_secrets(part)) for part in ((spec.command, *spec.args) if is_child else (spec.url,))]
    shown = shlex.join(parts) if is_child else parts[0]
    return ServerPin(_hash(json.dumps(parts)), shown[:_LONGEST_SHOWN])


def compare(pins: Pins, server: ServerPin, listed: Mapping[str, str]) -> Verdict:
    """What changed since the approval. `listed`: the hashes of the tools that the server lists, by name."""
    if pins.approved is None:
        return Verdict()
    changes: dict[str, ToolChange] = {}
    first_seen = []
    for name, found in listed.items():
        approved = pins.tools.get(name)
        if approved is None:
            changes[name] = ToolChange.NEW
        elif not approved.hash:
            first_seen.append(name)
        elif approved.hash != found:
            changes[name] = ToolChange.CHANGED
    gone = tuple(name for name, pin in pins.tools.items() if pin.hash and name not in listed)
    return Verdict(pins.approved.identity != server.identity, changes, gone, tuple(first_seen))


def baseline(definitions: Iterable[Definition], turned_off: Iterable[str]) -> dict[str, ToolPin]:
    """The first listing of a server, which counts as approved."""
    pins = {name: ToolPin("", by="baseline") for name in turned_off}
    return pins | {definition.name: pin_of(definition, "baseline") for definition in definitions}


def _canonical(definition: Definition) -> str:
    wire_json = definition.wire_json
    try:
        tool = pydantic_core.from_json(wire_json)
        return _written({key: tool[key] for key in _COUNTED if key in tool})
    except ValueError:
        # Numbers of thousands of digits and halves of characters, which only a hostile server sends.
        return _written({"name": definition.name, "unreadable": definition.definition_hash})


def _written(tool: Any) -> str:
    return json.dumps(_ordered(tool), sort_keys=True, separators=(",", ":"))


def _ordered(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _ordered(item, name) for name, item in value.items()}
    if isinstance(value, list):
        if key in _UNORDERED and all(isinstance(item, str) for item in value):
            return sorted(value)
        return [_ordered(item) for item in value]
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hashes_by_name(definitions: Sequence[Definition]) -> dict[str, str]:
    return {definition.name: definition_hash(definition) for definition in definitions}


def pins_by_name(definitions: Sequence[Definition]) -> dict[str, ToolPin]:
    return {definition.name: pin_of(definition) for definition in definitions}
