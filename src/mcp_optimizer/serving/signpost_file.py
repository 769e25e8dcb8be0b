"""Keeps the last description of the servers behind the gateway in a small file next to the database, so that the first
requests get the same line before anything is loaded.

The file is named after everything that the line depends on: another server file, or other rules, use another file. Read
by `cli` before the heavy imports, so it imports nothing slow; written by the composition root.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_optimizer import __version__
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.own_tools import NO_SIGNPOST, Signpost
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer_demo import demo_server_commands

_DEPENDS_ON = {
    "demo",
    "servers",
    "rules",
    "tool_risks",
    "trust_local",
    "trust_remote",
    "servers_trust",
    "encoding",
    "scripts",
}
_LONGEST = 50_000
"""Maximum bytes of such a file."""

_LONGEST_SERVER_FILE = 1_000_000
_MOST_NAMES = 20
_PLAIN_NAME = regex(r"[A-Za-z0-9][\w.-]{0,24}", re.ASCII)
_LONGEST_LINE = 2_000

_MOST_FILES = 32
"""Maximum number of configurations whose lines are kept; the latest ones stay."""


def read_signpost(settings: Settings) -> tuple[Signpost, dict[str, tuple[str, ...]]]:
    """The last line, and the words of each server; if no file of ours exists, the names from the server file."""
    if not settings.name_servers:
        return NO_SIGNPOST, {}
    names = _names(settings)
    unsaid: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    nothing = (Signpost(", ".join(names)), unsaid)
    path = _place(settings)
    if path is None:
        return nothing
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_LONGEST))
        words = {str(name): tuple(map(str, found)) for name, found in said["words"].items()}
        servers = said["servers"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return nothing
    is_line = isinstance(servers, str) and len(servers) <= _LONGEST_LINE and servers.isprintable()
    return (Signpost(servers), words) if is_line else nothing


def keep_signpost(settings: Settings, signpost: Signpost, words: Mapping[str, Sequence[str]]) -> None:
    """Keep the line for the next start. If the file is missing, the first requests are answered without it."""
    path = _place(settings)
    if path is None:
        return
    text = json.dumps({"servers": signpost.servers, "words": {name: list(found) for name, found in words.items()}})
    # The folder may be read-only or full: nothing depends on the file.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(written, path)
        latest = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in latest[_MOST_FILES:]:
            old.unlink(missing_ok=True)


def _names(settings: Settings) -> tuple[str, ...]:
    """The server names for the very first start. The servers' purposes are known only once they have started. Rules may
    hide servers, so names are used only if each rule is about one tool, or several whose names differ in a character.
    """
    if settings.servers or any("*" in rule.tool for rule in settings.rules):
        return ()
    if settings.demo:
        return tuple(sorted(demo_server_commands()))
    try:
        with settings.server_file.open("rb") as file:
            servers = json.loads(file.read(_LONGEST_SERVER_FILE))["mcpServers"]
        names = sorted(name for name, entry in servers.items() if not entry.get("disabled"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()
    are_plain = len(names) <= _MOST_NAMES and all(map(_PLAIN_NAME.fullmatch, names))
    return tuple(names) if are_plain else ()


def _place(settings: Settings) -> Path | None:
    """The file for these settings and the current server file; None if nothing is stored in files."""
    database = settings.database_place
    if not isinstance(database, Path):
        return None
    depends: Any = settings.model_dump(mode="json", include=_DEPENDS_ON & set(Settings.model_fields))
    digest = hashlib.sha256(json.dumps([__version__, depends], sort_keys=True).encode())
    if not settings.demo:
        try:
            digest.update(settings.server_file.read_bytes())
        except OSError:
            return None
    return database.parent / "signposts" / f"{digest.hexdigest()[:32]}.json"
