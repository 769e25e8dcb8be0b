"""The kinds of text that configuration files are written in."""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    """How a file is written."""

    JSON = "json"
    """With comments and trailing commas too."""
    TOML = "toml"
    YAML = "yaml"
