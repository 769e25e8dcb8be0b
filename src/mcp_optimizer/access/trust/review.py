"""Prepares what a person sees before approving tools: the state of pins, diffs, and notes on suspicious definitions.

Used by `trust list`, `trust diff` and the dashboard. Pure. Spells out hidden characters and cuts long texts. The notes
(hidden characters, encoded shell commands, clones) never block anything, and there is none on suspicious phrases:
guessing a description's intent from its phrases is wrong far more often than right.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.access.trust.pins import unpacked
from mcp_optimizer.domain.hidden_text import has_hidden, with_hidden_shown
from mcp_optimizer.domain.pins import INSTRUCTIONS, Pins, ServerPin, ToolChange, ToolPin, TrustMode
from mcp_optimizer.errors import listed
from mcp_optimizer.runtime.patterns import regex

MOST_LINES = 400
"""Maximum lines shown of one diff."""

_WIDTH = 100
_LONGEST = 200_000
"""Maximum characters compared of a definition: comparing takes quadratic time."""
_NEWLINE = regex(r"(?<!\\)((?:\\\\)*\\n)")
_SENTENCE = regex(r"(?<=[.!?;]) (?=\S)")


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The lines of a unified diff of two definitions; all lines of a new tool are additions."""
    lines = difflib.unified_diff(_lines(before), _lines(after), "approved", "now", n=2, lineterm="")
    shown = list(lines)
    rest = len(shown) - MOST_LINES
    return shown if rest <= 0 else [*shown[:MOST_LINES], f"… {rest:,} more lines"]


def titled(name: str) -> str:
    """The name of a pinned item, as shown to a person."""
    return "its instructions" if name == INSTRUCTIONS else name


def digest(tools: Mapping[str, str], identity: str = "") -> str:
    """A digest of exactly these versions, so that only what was shown can be approved.

    Long enough that a server cannot find two definitions with the same digest, one to be shown and one to be approved.
    """
    return hashlib.sha256(json.dumps([sorted(tools.items()), identity]).encode()).hexdigest()[:32]


def told(approved: Sequence[str], *, is_moved: bool) -> str:
    """A description of what was approved, for the audit."""
    return listed([*(["its command or URL"] if is_moved else []), *map(titled, approved)])


def _lines(definition: Mapping[str, Any]) -> list[str]:
    if not definition:
        return []
    text = json.dumps(definition, indent=2, ensure_ascii=False, sort_keys=True)
    cut = [] if len(text) <= _LONGEST else [f"… {len(text) - _LONGEST:,} more characters are not compared"]
    return [*(line for raw in text[:_LONGEST].split("\n") for line in _readable(raw)), *cut]


def _readable(line: str) -> Iterator[str]:
    """A line of JSON, split at newlines and sentences in its text, so that a small change makes a small diff."""
    indent = " " * (len(line) - len(line.lstrip(" ")) + 4)
    for place, part in enumerate(_NEWLINE.sub("\\1\n", line).split("\n")):
        for number, sentence in enumerate(_SENTENCE.split(part) if len(part) > _WIDTH else [part]):
            begin = "" if place == number == 0 else indent
            yield from map(with_hidden_shown, _wrapped(begin + sentence, indent))


def _wrapped(line: str, indent: str) -> list[str]:
    # Keep every blank, because a change of blanks is a change.
    return textwrap.wrap(
        line,
        width=max(_WIDTH, len(indent) + 40),
        subsequent_indent=indent,
        drop_whitespace=False,
        replace_whitespace=False,
        expand_tabs=False,
        break_on_hyphens=False,
    ) or [line]


HIDDEN = "hidden characters"
PAYLOAD = "an encoded shell command"

_LONGEST_READ = 1_000_000
_MOST_CANDIDATES = 1_000
_ENCODED = regex(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{24,20000}={0,2}(?![A-Za-z0-9+/=_-])")
_SHELL = regex(
    r"\b(?:curl|wget)\s+\S|\b(?:ba|z|da)?sh\s+-c\b|\|\s*(?:ba|z|da)?sh\b|/bin/(?:ba|z|da)?sh\b|\bpowershell\b|"
    r"\bInvoke-(?:Expression|WebRequest)\b|\brm\s+-rf\b|\bnc\s+-e\b|/dev/tcp/",
    re.IGNORECASE,
)
_LEAST_DESCRIPTION = 40
"""Length of a description from which two servers are unlikely to have the same one by chance."""

Key = tuple[str, str]
"""A tool: its server, and its own name on that server."""


def notes_on(tool: Mapping[str, Any]) -> list[str]:
    """Notes on features of a definition that an honest one does not need."""
    text = json.dumps(tool, ensure_ascii=False)[:_LONGEST_READ]
    found = [HIDDEN] if has_hidden(text) else []
    return [*found, PAYLOAD] if any(map(_SHELL.search, _decoded(text))) else found


def clones(tools: Iterable[tuple[Key, str]]) -> dict[Key, list[str]]:
    """Tools with the same name and description as another server's tool, each with a note that names that server."""
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (server, name), description in tools:
        said = " ".join(description.split())
        if len(said) >= _LEAST_DESCRIPTION:
            alike[name, said].append(server)
    return {
        (server, name): [f"the same as {name!r} of {other!r}" for other in servers if other != server][:1]
        for (name, _), servers in alike.items()
        if len(servers) > 1
        for server in servers
    }


def _decoded(text: str) -> Iterator[str]:
    for _, found in zip(range(_MOST_CANDIDATES), _ENCODED.finditer(text), strict=False):
        encoded = found.group().rstrip("=").translate(_STANDARD)
        try:
            plain = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
            yield plain.decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            continue


_STANDARD = str.maketrans("-_", "+/")


APPROVED = "approved"


@dataclass(frozen=True)
class ToolOverview:
    """A pinned tool, or a server's instructions: its state (approved, changed, new, server changed), the time of that
    state, and notes.
    """

    name: str
    state: str
    since_ms: int
    by: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerOverview:
    """A server with pins: its mode, if known, its approved identity, and its current one if that changed."""

    name: str
    mode: TrustMode | None
    approved: ServerPin
    waiting: ServerPin | None
    tools: tuple[ToolOverview, ...]
    instructions: ToolOverview | None = None
    """None if the server has no instructions."""

    @property
    def unapproved(self) -> list[ToolOverview]:
        """Tools, and possibly the instructions, that wait for a decision."""
        found = self.tools if self.instructions is None else (self.instructions, *self.tools)
        return [one for one in found if one.state != APPROVED]


def overview(pins: Mapping[str, Pins], modes: Mapping[str, TrustMode]) -> list[ServerOverview]:
    """All servers that have pins, sorted by name."""
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
    """Each tool in its latest known version."""
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
