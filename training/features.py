"""A tool as training reads it: each field as plain words, so that a view can leave some out.

Words, texts and parameters come from the product's own code, so that training sees exactly what is served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.tool_texts import (
    DESCRIPTION_CHARS,
    PARAMETERS_SHOWN,
    parameter_names,
    parameter_texts,
    query_parts,
    server_words,
    split_words,
)
from mcp_optimizer.search.words import STOP_WORDS, terms

__all__ = ["DESCRIPTION_CHARS", "STOP_WORDS", "Floats", "ToolWords", "normalised", "query_parts", "terms"]

_SPACE = re.compile(r"\s+")


def normalised(text: str) -> str:
    """The text as lower-case letters and digits only, for comparison."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What is known about one tool, each field as plain words."""

    server: str
    name: str
    description: str
    parameters: tuple[str, ...]
    parameter_text: str = ""

    @classmethod
    def of(cls, server: str, name: str, description: str, schema: Mapping[str, Any] | None) -> ToolWords:
        """Read a tool as MCP sends it."""
        return cls(
            server=server_words(server),
            name=split_words(name),
            description=_SPACE.sub(" ", description).strip(),
            parameters=tuple(split_words(parameter) for parameter in parameter_names(schema)),
            parameter_text=" ".join(parameter_texts(schema or {})),
        )

    def identity(self) -> str:
        """Equal for tools with the same text: the name and the beginning of the description."""
        return f"{self.name}|{normalised(self.description)[:120]}"

    def text(self) -> str:
        """What an encoder reads: `search.tooltext.tool_text`, from words that are already split."""
        shown = ", ".join(self.parameters[:PARAMETERS_SHOWN])
        head = f"{self.server} {self.name}: {self.description[:DESCRIPTION_CHARS]}"
        return f"{head} ({shown})" if shown else head
