"""Three cheap checks of definitions, as notes for people: hidden characters, shell commands in disguise, clones. Pure.

They never block anything. Guessing from phrases what a description is up to is left to others: on real tools it is
wrong far more often than right.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mcp_optimizer.domain.hidden_text import has_hidden

HIDDEN = "hidden characters"
PAYLOAD = "an encoded shell command"

_LONGEST_READ = 1_000_000
_MOST_CANDIDATES = 1_000
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{24,20000}={0,2}(?![A-Za-z0-9+/=_-])")
_SHELL = re.compile(
    r"\b(?:curl|wget)\s+\S|\b(?:ba|z|da)?sh\s+-c\b|\|\s*(?:ba|z|da)?sh\b|/bin/(?:ba|z|da)?sh\b|\bpowershell\b|"
    r"\bInvoke-(?:Expression|WebRequest)\b|\brm\s+-rf\b|\bnc\s+-e\b|/dev/tcp/",
    re.IGNORECASE,
)
_LEAST_DESCRIPTION = 40
"""Characters of a description from which two servers hardly write the same by chance."""

Key = tuple[str, str]
"""A tool: its server, and its own name there."""


def notes_on(tool: Mapping[str, Any]) -> list[str]:
    """What a definition has that no honest one needs."""
    text = json.dumps(tool, ensure_ascii=False)[:_LONGEST_READ]
    found = [HIDDEN] if has_hidden(text) else []
    return [*found, PAYLOAD] if any(map(_SHELL.search, _decoded(text))) else found


def clones(tools: Iterable[tuple[Key, str]]) -> dict[Key, list[str]]:
    """Tools with the name and the description of a tool of another server, with a note that names it."""
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
