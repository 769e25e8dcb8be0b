"""The kinds of text that configuration files are written in, and the two ways in which reading or editing one fails.

Every module of this room uses these names; the rest of the program gets them from `reading` and `editing`.
"""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    JSON = "JSON"
    """Also with comments and trailing commas."""
    TOML = "TOML"
    YAML = "YAML"


class UnreadableText(ValueError):
    """The text is not of its kind. The message says where, by line and column."""


class CannotEdit(ValueError):
    """The text is valid, but the change cannot be made without touching something else. The message says why."""


LARGEST = {FileKind.JSON: 50_000_000, FileKind.TOML: 5_000_000, FileKind.YAML: 2_000_000}
"""Characters. A client's own state may share its JSON file; nobody writes that much TOML or YAML."""

BOM = "\ufeff"
BLANK = " \t\r\n"


def place(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f"at line {line}, column {index - text.rfind(chr(10), 0, index)}"


def line_end(text: str) -> str:
    """The line end that the text uses."""
    return "\r\n" if "\r\n" in text else "\n"
