"""Reads single values of a server file's entry, or says what is wrong with them. Pure; knows no keys.

A message never quotes a value: it may be a misplaced secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, text_of
from mcp_optimizer.domain.failure_kinds import FailureKind

_ALIKE = 0.8
"""Similarity above which one word counts as a mistyped form of the other."""


class NotSetYet(UnusableEntry):
    """An entry that the user can make usable without changing it."""

    kind = FailureKind.VARIABLE


class VariableNotSet(NotSetYet):
    """An entry that uses an environment variable that is not set."""


def kind_of(problem: UnusableEntry) -> FailureKind:
    """The kind of failure that an unusable entry is."""
    return problem.kind if isinstance(problem, NotSetYet) else FailureKind.ENTRY


def meant(key: str, keys: Iterable[str]) -> str | None:
    """The key that this one most likely stands for, if any."""
    return next(iter(get_close_matches(key.lower(), sorted(keys), n=1, cutoff=_ALIKE)), None)


def required(entry: Mapping[str, Any], key: str) -> str:
    """A text that must not be missing."""
    value = text_at(entry, key)
    if not value:
        raise UnusableEntry(f'"{key}" is missing or empty')
    return value


def text_at(entry: Mapping[str, Any], key: str) -> str:
    """A text; empty if the key is missing."""
    return text_of(entry.get(key, ""), key)


def located(named: str, where: str, folder: Path) -> Path:
    """The path of a file or folder, relative to the server file's folder."""
    try:
        return (folder / Path(named).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        # The home of a user who does not exist, a null character, or a loop of links.
        raise UnusableEntry(f'"{where}" is not a usable path') from None


def scheme_for(address: str) -> str:
    """The likely scheme of an address without one: only this machine is reached without TLS."""
    host = address.lstrip("/").split("/")[0].rsplit(":", 1)[0].lower()
    return "http://" if host in ("localhost", "127.0.0.1", "[::1]") else "https://"


def from_environment(name: str, where: str, environment: Mapping[str, str]) -> str:
    """The value of the environment variable that a key names."""
    if not (found := environment.get(name, "").strip()):
        raise VariableNotSet(f'"{where}" must name an environment variable; the one that it names is not set')
    return found
