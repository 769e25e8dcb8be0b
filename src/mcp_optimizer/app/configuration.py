"""Which configuration a gateway runs, in a word that names nothing: history belongs to it. Pure but for paths."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from mcp_optimizer.settings import Settings
from mcp_optimizer.upstream.spec import ServerSpec

_LETTERS = 16


def configuration_of(settings: Settings, given: Iterable[ServerSpec] | None = None) -> str:
    """The same for every gateway of a server file, however it is spelt; servers `given` by a program are their own."""
    if given is not None:
        return _label("given", *sorted(f"{spec.name} {spec.fingerprint}" for spec in given))
    return _label("demo") if settings.demo else _label("file", os.path.realpath(settings.server_file))


def _label(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:_LETTERS]
