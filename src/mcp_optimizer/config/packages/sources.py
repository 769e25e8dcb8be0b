"""Parses the argument of `add`: which kind of source it is, and a name for the server. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

_LONGEST_NAME = 64
_REGISTRY_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}/[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DECORATION = regex(r"^(mcp[-_.]server[-_.]|server[-_.]|mcp[-_.])|([-_.]mcp[-_.]server|[-_.]mcp)$", re.IGNORECASE)
_MEANINGLESS_LABELS = frozenset({"mcp", "www", "api", "server", "sse"})


class SourceKind(StrEnum):
    """Where a server comes from."""

    COMMAND = "command"
    URL = "url"
    NPM = "npm"
    PYPI = "pypi"
    OCI = "oci"
    BUNDLE = "mcpb"
    REGISTRY = "registry"


_PREFIXES = {"npm:": SourceKind.NPM, "pypi:": SourceKind.PYPI, "oci:": SourceKind.OCI}

_PYPI_AT = regex(r"([\w.-]+(?:\[[\w.,-]*\])?)@(\d[\w.!+-]*)", re.ASCII)
"""A package of PyPI with a version as npm and uvx spell it."""


@dataclass(frozen=True)
class Source:
    """What to add. `text` is a package, an address, a path or a name; `words` a command, or more arguments of it."""

    kind: SourceKind
    text: str
    words: tuple[str, ...] = ()


def source_of(text: str, words: Sequence[str] = ()) -> Source:
    """`NAME -- command ...`, an address, `npm:`, `pypi:`, `oci:`, a bundle, or a name in a registry."""
    given = tuple(words)
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            package = text.removeprefix(prefix)
            return Source(kind, _PYPI_AT.sub(r"\1==\2", package) if kind is SourceKind.PYPI else package, given)
    is_address = text.startswith(("http://", "https://"))
    path = urlsplit(text).path if is_address and _is_readable(text) else text
    if path.lower().endswith((".mcpb", ".dxt")):
        return Source(SourceKind.BUNDLE, text, given)
    if is_address:
        if given:
            raise ConfigurationError("A server at an address takes no arguments.")
        return Source(SourceKind.URL, text)
    if _REGISTRY_NAME.fullmatch(text):
        return Source(SourceKind.REGISTRY, text, given)
    if given:
        return Source(SourceKind.COMMAND, text, given)
    raise ConfigurationError(
        f"{quoted(text)} is not a source that can be added: NAME -- COMMAND ARGUMENTS, https://ADDRESS, "
        "npm:PACKAGE, pypi:PACKAGE, oci:IMAGE, FILE.mcpb, or a name in the registry such as io.github.user/server."
    )


def _is_readable(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def checked_name(name: str) -> str:
    """A valid name for a new server. A slash would make it look like the name of a tool."""
    if not name or len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"The name of a server has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    if not name.isprintable() or name != name.strip() or name.startswith("-") or "/" in name or "," in name:
        raise ConfigurationError(
            f"{quoted(name)} cannot be the name of a server: it must be printable, without slash, comma, spaces around "
            "it, or a dash at its beginning."
        )
    return name


def suggested_name(text: str) -> str:
    """A short name derived from a package, image, bundle, address or registry name."""
    if text.startswith(("http://", "https://")):
        return _of_host(text)
    last = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    last = re.sub(r"(@sha256)?[:@=].*$|\.(mcpb|dxt)$", "", last) or last
    return _plain(_DECORATION.sub("", last) or last)


def _of_host(url: str) -> str:
    host = (urlsplit(url).hostname or "") if _is_readable(url) else ""
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        return _plain(host)
    labels = host.split(".")[:-1] or [host]
    telling = [label for label in labels if label not in _MEANINGLESS_LABELS]
    return _plain((telling or labels)[0])


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_LONGEST_NAME] or "server"
