"""A tool in the catalog: its definition, its cost, and how it is found. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.compression.compress import without_envelope
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.search.deprecation import successors
from mcp_optimizer.search.document import document
from mcp_optimizer.search.lexical import TermCounts, Vocabulary, count_terms
from mcp_optimizer.search.tooltext import tool_text


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool of a server, ready to be found, counted and called."""

    server: str
    definition: Definition
    token_count: int
    counts: TermCounts
    vector_key: str
    successors: tuple[str, ...] | None = None
    """The names that a deprecated tool points to; None: it is not deprecated."""
    purpose: str = ""
    """What the server file says its server is for."""
    hints: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """What its annotations claim about its effects."""
    sent_tokens: int = 0
    """The part of `token_count` that clients send to a model: of the name, the description and the input schema."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def details(self) -> McpTool:
        return self.definition.details

    @property
    def definition_hash(self) -> str:
        return self.definition.definition_hash

    @property
    def text(self) -> str:
        """The text that an encoder reads."""
        return tool_text(self.server, self.definition.parsed(), self.purpose)


def vector_key(text: str) -> str:
    """The key of its vector: the text that the encoder read, which includes the server's name."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class ServerText:
    """What is said about a server: by the server file, and by as much of its own instructions as was admitted."""

    purpose: str = ""
    instructions: str = ""

    @property
    def words(self) -> str:
        return f"{self.purpose} {self.instructions}".strip()


NOTHING_SAID = ServerText()


def make_records(
    server: str,
    definitions: Sequence[Definition],
    counts: Mapping[str, int],
    vocabulary: Vocabulary,
    said: ServerText = NOTHING_SAID,
) -> list[ToolRecord]:
    """Ordered by name, whatever order the server uses."""
    return [
        _record(server, definition, counts.get(definition.definition_hash, 0), vocabulary, said)
        for definition in sorted(definitions, key=lambda definition: definition.name)
    ]


def _record(
    server: str, definition: Definition, token_count: int, vocabulary: Vocabulary, said: ServerText
) -> ToolRecord:
    tool = definition.parsed()
    counts = count_terms(document(server, tool, said.words), vocabulary)
    deprecated = successors(tool.title or "", tool.description or "", tool.annotations or {})
    key = vector_key(tool_text(server, tool, said.purpose))
    hints, sent = effect_hints(tool.annotations), _sent_tokens(definition, tool, token_count)
    return ToolRecord(server, definition, token_count, counts, key, deprecated, said.purpose, hints, sent)


def _sent_tokens(definition: Definition, tool: McpTool, token_count: int) -> int:
    """By the share of its characters: to count it again would take as long as the first time, at every start. On the
    demo's 85 tools it is half a percent below the count.
    """
    if not token_count:
        return 0
    sent = len(without_envelope(tool).model_dump_json())
    return min(token_count, round(token_count * sent / len(definition.wire_json)))


_NO_HINTS: Mapping[str, bool] = {}
_HINTS = ("readOnlyHint", "destructiveHint")


def effect_hints(annotations: Mapping[str, Any] | None) -> Mapping[str, bool]:
    """What annotations claim about a tool's effects; anything but true and false claims nothing."""
    if not annotations:
        return _NO_HINTS
    return {name: value for name in _HINTS if isinstance(value := annotations.get(name), bool)} or _NO_HINTS
