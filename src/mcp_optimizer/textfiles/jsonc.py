"""JSON with comments and trailing commas, turned into strict JSON of the same length, so that positions stay right.

Used by `reading` and `json_edits`. It does not parse: the standard library does.
"""

from __future__ import annotations

import re

from mcp_optimizer.textfiles.kinds import BOM, UnreadableText, place

# A string, or a comment, or a comma followed only by whitespace and comments before a closing bracket. A comment is
# atomic, `(?>`: it ends at its first "*/" and is never extended to a later one. A string or comment that is never
# closed takes the rest, so that no text is searched twice.
_PART = re.compile(
    r"""("(?:\\.|[^"\\])*+"?)|(//[^\n]*|(?>/\*.*?(?:\*/|\Z)))|,(?=(?:\s|//[^\n]*\n|(?>/\*.*?\*/))*+[}\]])""",
    re.DOTALL,
)
_VISIBLE = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """The text with each comment replaced by blanks. Trailing commas stay."""
    return _PART.sub(lambda part: _blank(part) if part.group(2) else part.group(), _without_bom(text))


def strict(text: str) -> str:
    """The text as strict JSON: comments and trailing commas replaced by blanks, line by line."""
    return _PART.sub(lambda part: part.group(1) or _blank(part), _without_bom(text))


def _without_bom(text: str) -> str:
    return " " + text[1:] if text.startswith(BOM) else text


def _blank(part: re.Match[str]) -> str:
    found = part.group()
    if found.startswith("/*") and (len(found) < 4 or not found.endswith("*/")):
        raise UnreadableText(f"A comment is never closed {place(part.string, part.start())}")
    return _VISIBLE.sub(" ", found)
