"""The kinds of text that configuration files are written in, and the two errors of reading and editing them.

Every module of this package uses these names; the rest of the program gets them from `reading` and `editing`.
"""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    JSON = "JSON"
    """JSON, also with comments and trailing commas."""
    TOML = "TOML"
    YAML = "YAML"


class UnreadableText(ValueError):
    """The text is not of its kind. The message says where, by line and column."""


class CannotEdit(ValueError):
    """The text is valid, but the change is not possible without changing something else. The message says why."""


LARGEST = {FileKind.JSON: 50_000_000, FileKind.TOML: 5_000_000, FileKind.YAML: 2_000_000}
"""Maximum characters. A client's own state may share its JSON file; TOML and YAML files are written by hand."""

BOM = "\ufeff"
BLANK = " \t\r\n"


def place(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f"at line {line}, column {index - text.rfind(chr(10), 0, index)}"


def line_end(text: str) -> str:
    """The line ending that the text uses."""
    return "\r\n" if "\r\n" in text else "\n"
