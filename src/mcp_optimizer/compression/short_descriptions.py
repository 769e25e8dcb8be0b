"""Short descriptions of tools: the value, the choice of written ones, and a definition that uses one. Pure.

`five_words` makes them from the tools themselves; an endpoint may write better ones. `concise` describes a directly
registered tool in at most five words and leaves its parameters unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.compression.lossless import joined, tidy
from mcp_optimizer.compression.rules import binding
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.search.words import terms

MOST_WORDS = 5

LONGEST_SHORT = 80
"""Characters of a short description."""


class Level(StrEnum):
    """How long a description is: as `compress` leaves it, or at most five words."""

    FULL = "full"
    WORDS = "words"


@dataclass(frozen=True)
class ShortDescription:
    """A tool's description in at most five words; `is_clear` is False if another tool has the same."""

    text: str
    is_clear: bool


def better_written(chosen: Sequence[ShortDescription], written: Sequence[str | None]) -> list[ShortDescription]:
    """Descriptions written by an endpoint, where they are short enough and distinguish the tool from all others."""
    taken = Counter(frozenset(terms(short.text)) for short in chosen)
    found = list(chosen)
    for position, text in enumerate(written):
        if text is None or not _is_short(text):
            continue
        own, new = frozenset(terms(found[position].text)), frozenset(terms(text))
        if taken[new] - (own == new):
            continue
        taken.subtract([own])
        taken.update([new])
        found[position] = ShortDescription(text, is_clear=True)
    return found


def _is_short(text: str) -> bool:
    """At most five meaningful words in one printable line."""
    return (
        0 < len(text.split()) <= MOST_WORDS and bool(terms(text)) and text.isprintable() and len(text) <= LONGEST_SHORT
    )


def concise(tool: McpTool, short: ShortDescription, description: str) -> McpTool:
    """The tool described in at most five words; `description` is the complete description.

    Rules without which a call goes wrong are kept, and so is the schema of the arguments.
    """
    if not short.text:
        return tool
    schema = tool.input_schema
    notes = {name: str(node.get("description", "")) for name, node in properties_of(schema).items() if _is_node(node)}
    rules, own = binding(tidy(description), notes), schema.get("description")
    if rules:
        schema = {**schema, "description": joined(own, rules) if isinstance(own, str) and own else rules}
    return tool.model_copy(update={"description": short.text, "input_schema": schema})


def _is_node(schema: Any) -> bool:
    # `true` and `false` are schemas too.
    return isinstance(schema, dict)
