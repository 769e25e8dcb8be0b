"""Reads tools/list dumps: files with servers' listings, to examine catalogs without starting anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.upstream.listing import Listing, read_tools


def read_dumps(folder: Path) -> Iterator[tuple[str, Listing]]:
    """One server per file, named after it: a list of tools, or {"tools": [...]}."""
    if not folder.is_dir():
        raise ConfigurationError(f"No folder at {folder}. --tools-dir takes a folder of tools/list dumps (*.json).")
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ConfigurationError(f"{folder} contains no *.json files.")
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"Cannot read the dump {path}: {error}.") from error
        tools = content.get("tools") if isinstance(content, dict) else content
        if not isinstance(tools, list):
            raise ConfigurationError(f'{path} contains neither a list of tools nor {{"tools": [...]}}.')
        yield path.stem, read_tools(tools)
