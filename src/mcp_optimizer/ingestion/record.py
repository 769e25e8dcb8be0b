"""A tool as the catalog holds it: its definition, what it costs, and how it is found. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """A tool of a server, ready to be found, counted and called."""

    server: str
    details: McpTool
    definition_hash: str
    token_count: int
    counts: TermCounts

    @property
    def name(self) -> str:
        return self.details.name

    @property
    def text(self) -> str:
        """What an encoder reads of it."""
        return tool_text(self.server, self.details)


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
            details=definition.details,
            definition_hash=definition.definition_hash,
            token_count=counts.get(definition.definition_hash, 0),
            counts=count_terms(document(server, definition.details), vocabulary),
        )
        for definition in definitions
    ]
    return sorted(records, key=lambda record: record.name)
