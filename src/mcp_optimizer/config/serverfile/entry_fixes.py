"""Corrections of a server file that need no guess: the error has only one right form, and cannot be intended.

Pure: from a document to edits. Called by `doctor --fix`, which shows and writes them. A correction never quotes a
value: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from mcp_optimizer.config.serverfile.entry_values import scheme_for
from mcp_optimizer.runtime.patterns import regex

_ADDRESS = regex(r"(?:(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*|localhost|127\.0\.0\.1)(?::\d+)?(?:/\S*)?", re.I)
"""A host that has dots or is this machine, with an optional port and path."""
_TYPES = ("stdio", "http", "sse", "streamable-http", "streamable_http", "streamablehttp", "local")
_ALIKE = 0.75
_URLS = ("url", "httpUrl", "serverUrl")
_KINDS = ("type", "transport", "transportType")
_TERMINAL = ("-it", "-ti")


@dataclass(frozen=True)
class EntryFix:
    """One edit of a server file: replaces the value at a path of keys, or removes it if there is no new one."""

    server: str
    path: tuple[str, ...]
    says: str
    value: Any = None

    @property
    def removes(self) -> bool:
        return self.value is None


def entry_fixes(document: Any, themselves: Collection[str]) -> list[EntryFix]:
    """The corrections of a document. `themselves`: entries that start this gateway with this file, without end."""
    found: list[EntryFix] = []
    for name, entry, path in _entries(document):
        if name in themselves:
            found.append(EntryFix(name, path, "remove the entry: it is this gateway, which would start itself"))
        elif isinstance(entry, dict):
            found += _of_entry(name, entry, path)
    return found


def _entries(document: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for keys in (("mcpServers",), ("servers",), ("mcp", "servers")):
        there = document
        for key in keys:
            there = there.get(key) if isinstance(there, dict) else None
        if isinstance(there, dict):
            yield from ((name, entry, (*keys, name)) for name, entry in there.items())
            return


def _of_entry(name: str, entry: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[EntryFix]:
    for key in _URLS:
        url = entry.get(key)
        if isinstance(url, str) and _ADDRESS.fullmatch(url):
            scheme = scheme_for(url)
            yield EntryFix(name, (*path, key), f'put {scheme} in front of its "{key}"', scheme + url)
    for key in _KINDS:
        kind = entry.get(key)
        is_wrong = isinstance(kind, str) and kind.lower() not in _TYPES
        if is_wrong and (meant := get_close_matches(str(kind).lower(), _TYPES[:3], n=1, cutoff=_ALIKE)):
            yield EntryFix(name, (*path, key), f'set its "{key}" to "{meant[0]}"', meant[0])
    command, args = entry.get("command"), entry.get("args")
    is_container = isinstance(command, str) and PurePath(command).name in ("docker", "podman")
    if is_container and isinstance(args, list) and args[:1] == ["run"] and args[1:2] and args[1] in _TERMINAL:
        changed = ["run", "-i", *args[2:]]
        yield EntryFix(name, (*path, "args"), f'take "-t" out of its "{args[1]}": a server has no terminal', changed)
