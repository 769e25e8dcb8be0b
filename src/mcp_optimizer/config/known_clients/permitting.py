"""Which tools a client refuses, asks about or allows, as its files say it. Values and pure functions.

`clients.permissions` turns them into rules. Server names are those in the client's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from mcp_optimizer.runtime.patterns import regex

MOST = 1_000
"""Maximum permissions read from one file, and tools from one entry."""
_LONGEST = 300
_NOT_PLAIN = regex(r"[^A-Za-z0-9_-]")
_SIGNS = regex(r"[*?\[]")


class PermissionKind(StrEnum):
    """What is done with a tool, strictest first."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class ClientPermission(NamedTuple):
    """What a client does with some tools of a server."""

    kind: PermissionKind
    server: str
    tool: str
    """A glob pattern."""
    reason: str


class FilePermissions(NamedTuple):
    """What a file says about some servers."""

    found: tuple[ClientPermission, ...] = ()
    allowed: int = 0
    """How many kinds of tools the client calls without asking, which is not carried over."""


def _nothing(_name: str, _entry: Mapping[str, Any]) -> Iterator[ClientPermission]:
    return iter(())


class PermissionReading(NamedTuple):
    """Where a client keeps its permissions for tools."""

    of_entry: Callable[[str, Mapping[str, Any]], Iterator[ClientPermission]] = _nothing
    """From a server's entry, given its name."""
    of_file: Callable[[Mapping[str, Any], Sequence[str], str], FilePermissions] | None = None
    """From a file, given the servers' names and the file's."""
    other_files: Callable[[Path, Mapping[str, str], str, Path], list[Path]] | None = None
    """Files for `of_file`, given home, environment, platform and current folder; None: the files with servers."""
    chosen_key: str = ""
    """The key of an entry that lists the offered tools, if `*` there means all."""


def listed_texts(value: Mapping[str, Any], *keys: str) -> list[str]:
    """The strings in the lists at these keys."""
    found = (item for key in keys if isinstance(value.get(key), list) for item in value[key][:MOST])
    return [item for item in found if isinstance(item, str) and 0 < len(item) <= _LONGEST and item.isprintable()]


def plain_name(name: str) -> str:
    """A server's name in the form for clients that do not allow some characters."""
    return _NOT_PLAIN.sub("_", name)


def literal(name: str) -> str:
    """A pattern that only this name matches."""
    return _SIGNS.sub(lambda sign: f"[{sign.group()}]", name)


def has_signs(text: str) -> bool:
    return _SIGNS.search(text) is not None


def before_signs(text: str) -> str:
    """The part of a pattern before its first wildcard."""
    sign = _SIGNS.search(text)
    return text[: sign.start()] if sign else text
