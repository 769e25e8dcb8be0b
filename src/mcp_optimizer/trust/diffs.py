"""What changed in a definition, as lines for a person: hidden characters are written out, long texts are cut. Pure."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.domain.pins import INSTRUCTIONS
from mcp_optimizer.errors import listed

MOST_LINES = 400
"""Lines of one diff that are shown."""

_WIDTH = 100
_LONGEST = 200_000
"""Characters of a definition that are compared: comparing takes quadratic time."""
_NEWLINE = re.compile(r"(?<!\\)((?:\\\\)*\\n)")
_SENTENCE = re.compile(r"(?<=[.!?;]) (?=\S)")


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The lines of a unified diff of two definitions; of a new tool, all of its lines are new."""
    lines = difflib.unified_diff(_lines(before), _lines(after), "approved", "now", n=2, lineterm="")
    shown = list(lines)
    rest = len(shown) - MOST_LINES
    return shown if rest <= 0 else [*shown[:MOST_LINES], f"… {rest:,} more lines"]


def titled(name: str) -> str:
    """What a person calls something that is pinned."""
    return "its instructions" if name == INSTRUCTIONS else name


def digest(tools: Mapping[str, str], identity: str = "") -> str:
    """Stands for exactly these versions, so that nobody approves what was not shown.

    Long enough that a server cannot look for two definitions with the same one: to be shown, and to be approved.
    """
    return hashlib.sha256(json.dumps([sorted(tools.items()), identity]).encode()).hexdigest()[:32]


def told(approved: Sequence[str], *, is_moved: bool) -> str:
    """What was approved, for the audit."""
    return listed([*(["its command or URL"] if is_moved else []), *map(titled, approved)])


def _lines(definition: Mapping[str, Any]) -> list[str]:
    if not definition:
        return []
    text = json.dumps(definition, indent=2, ensure_ascii=False, sort_keys=True)
    cut = [] if len(text) <= _LONGEST else [f"… {len(text) - _LONGEST:,} more characters are not compared"]
    return [*(line for raw in text[:_LONGEST].split("\n") for line in _readable(raw)), *cut]


def _readable(line: str) -> Iterator[str]:
    """A line of JSON, broken where its text has newlines and sentences, so that a small change is a small diff."""
    indent = " " * (len(line) - len(line.lstrip(" ")) + 4)
    for place, part in enumerate(_NEWLINE.sub("\\1\n", line).split("\n")):
        for number, sentence in enumerate(_SENTENCE.split(part) if len(part) > _WIDTH else [part]):
            begin = "" if place == number == 0 else indent
            yield from map(with_hidden_shown, _wrapped(begin + sentence, indent))


def _wrapped(line: str, indent: str) -> list[str]:
    # Every blank stays: a change of blanks is a change.
    return textwrap.wrap(
        line,
        width=max(_WIDTH, len(indent) + 40),
        subsequent_indent=indent,
        drop_whitespace=False,
        replace_whitespace=False,
        expand_tabs=False,
        break_on_hyphens=False,
    ) or [line]
