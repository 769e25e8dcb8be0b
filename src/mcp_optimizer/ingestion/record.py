"""A tool as the catalog holds it: its definition, what it costs, and how it is found. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mcp_optimizer.db.models import McpTool
from mcp_optimizer.search.document import document
from mcp_optimizer.search.lexical import TermCounts, Vocabulary, count_terms
from mcp_optimizer.search.tooltext import tool_text


@dataclass(frozen=True)
class Definition:
    """A listed tool with its wire form and the hash that its costs are stored under."""

    details: McpTool
    wire_json: str
    definition_hash: str


@dataclass(frozen=True)
class ToolRecord:
    """A tool of a server, ready to be found, counted and called.

    Kept as JSON: parsed, a definition takes ten times the memory, and few of them are looked at.
    """

    server: str
    name: str
    wire_json: str
    definition_hash: str
    token_count: int
    counts: TermCounts
    vector_key: str

    @property
    def details(self) -> McpTool:
        return _parsed(self.wire_json)

    @property
    def text(self) -> str:
        """What an encoder reads of it."""
        return tool_text(self.server, self.details)


@lru_cache(maxsize=1_000)
def _parsed(wire_json: str) -> McpTool:
    return McpTool.model_validate_json(wire_json)


def vector_key(text: str) -> str:
    """What a vector is stored under: the text that the encoder read, which the server's name is part of."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def define(tools: Sequence[McpTool]) -> list[Definition]:
    """Serialise each tool once; the count and the hash both come from this text."""
    definitions = []
    for tool in tools:
        wire_json = tool.model_dump_json()
        digest = hashlib.sha256(wire_json.encode("utf-8", "surrogatepass")).hexdigest()
        definitions.append(Definition(tool, wire_json, digest))
    return definitions


def make_records(
    server: str, definitions: Sequence[Definition], counts: Mapping[str, int], vocabulary: Vocabulary
) -> list[ToolRecord]:
    """In the order of names, whatever order the server lists them in."""
    records = [
        ToolRecord(
            server=server,
            name=definition.details.name,
            wire_json=definition.wire_json,
            definition_hash=definition.definition_hash,
            token_count=counts.get(definition.definition_hash, 0),
            counts=count_terms(document(server, definition.details), vocabulary),
            vector_key=vector_key(tool_text(server, definition.details)),
        )
        for definition in definitions
    ]
    return sorted(records, key=lambda record: record.name)
