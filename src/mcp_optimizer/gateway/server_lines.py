"""What a model should know about a server before it calls its tools: from the server file and from the server's own
instructions, shortened. Called by `finding`.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from mcp_optimizer.compression.notes import opening
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.hidden_text import without_hidden
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.upstream.state import UpstreamState

LISTING_PLACES = ("list_allowed_directories", "list_allowed_paths", "list_allowed_roots", "list_repositories")
"""Names of tools that list the places their server may access."""

_LONGEST = 240
_LONGEST_PATH = 200
_MOST_PATHS = 3
_PROGRAMS = regex(r"\.(?:[cm]?[jt]s|py|pyz|jar|sh|exe|dll|rb|php|wasm|json|toml|ya?ml|env)$", re.I)
_NOT_DATA = frozenset("--directory --project --prefix --config --cache --cwd -C -c -m --from --env-file --log".split())
"""Options whose value locates a program or its setup, not the data it works on."""

_SECRET = regex(r"key|token|secret|cred|cert|pass|auth|/\.", re.I)
"""Matches options and paths that lead to secrets or hidden folders."""


def about_server(state: UpstreamState, listing: str = "") -> str:
    """One line about a server: its purpose, where it works, and the start of its instructions.

    `listing`: the server's tool that lists the places it may use. It is named, not called: the user asked for no call.
    """
    said = [_line(state.spec.description)] if state.spec.description else []
    if paths := places(state.spec):
        said.append(f"paths: {', '.join(paths)}")
    elif listing:
        said.append(f"where it may work: {listing}()")
    if state.instructions and not state.spec.description:
        # Quoted, because the server says it, not the gateway or the user.
        words = _line(opening(state.instructions)).replace('"', "'")
        said.append(f'says "{words}"')
    return "; ".join(said)


def places(spec: ServerSpec) -> tuple[str, ...]:
    """The existing files and folders that a local server was started with, except its own program and its secrets."""
    return _places(tuple(map(spec.without_secrets, spec.args))) if spec.transport is Transport.STDIO else ()


@lru_cache(maxsize=1_024)
def _places(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Cached, because a path on another machine may take long to check."""
    found, before = [], ""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("-") and "=" in argument else argument
        option, before = (argument.partition("=")[0] if value is not argument else before), argument
        if option in _NOT_DATA or _SECRET.search(option) or not _is_place(value):
            continue
        found.append(os.path.expanduser(value))
    more = ("…",) if len(found) > _MOST_PATHS else ()
    return (*found[:_MOST_PATHS], *more)


def _is_place(value: str) -> bool:
    is_path = value.startswith(("/", "~/")) or value[1:3] == ":\\"
    if not is_path or len(value) > _LONGEST_PATH or _PROGRAMS.search(value) or _SECRET.search(value):
        return False
    path = os.path.expanduser(value)
    if not path.isprintable() or "node_modules" in path or not os.path.exists(path):
        return False
    return os.path.isdir(path) or not os.access(path, os.X_OK)


def _line(text: str) -> str:
    text = " ".join(without_hidden(text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rsplit(" ", 1)[0] + "…"
