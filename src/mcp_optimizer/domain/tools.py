"""The values that the rooms of this package exchange: servers, tools and their costs.

Every room above may import these; they import nothing but pydantic. The SDK's types are not used, because they drop
unknown fields, and a gateway must not.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL
from mcp_optimizer.domain.hidden_text import has_hidden, tool_without_hidden

if TYPE_CHECKING:
    import numpy as np


SKILL_PREFIX = "skill:"
"""Begins the names of skills in the catalog. Models' APIs do not accept the colon, so a client always gets a name that
has the server in it.
"""

SKILL_META_KEY = "mcp-optimizer/skill"
"""The key of `_meta` with a skill's entry, in the definition under which the skill is listed: see `skills`."""

_SKILL_MARK = f'"{SKILL_META_KEY}"'


class McpTool(BaseModel):
    """An MCP tool definition, exactly as its server sent it, including unknown fields.

    `model_dump_json()` is the wire form (camelCase, compact, no nulls), so its tokens are those a client would be sent.
    """

    model_config = ConfigDict(extra="allow", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    name: str = Field(min_length=1)
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = Field(alias="inputSchema")
    output_schema: dict[str, Any] | None = Field(default=None, alias="outputSchema")
    annotations: dict[str, Any] | None = None
    _found: tuple[str, float] = PrivateAttr(default=("", 0.0))

    @property
    def server(self) -> str:
        """The server on which a search found it; not part of the definition, so empty for any other tool."""
        return self._found[0]

    @property
    def score(self) -> float:
        """How likely it answers the search that found it, from 0 to 1; not part of the definition."""
        return self._found[1]

    def mark_found(self, server: str, score: float) -> Self:
        """Records where a search found it, and how likely it answers. Returns itself."""
        self._found = (server, score)
        return self

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Only this object's own fields: a null inside a schema (`"default": null`) has a meaning.
        return {key: value for key, value in handler(self).items() if value is not None}

    @property
    def definition_hash(self) -> str:
        """The key for token counts and vectors, so the same definition is never counted twice."""
        return _hash(self.model_dump_json())


@dataclass(frozen=True, slots=True)
class Definition:
    """A listed tool as stored in memory: its wire form, and the hash under which its costs and vector are stored.

    Packed JSON, because a parsed definition takes forty times the memory, and few are read.
    """

    name: str
    packed: bytes
    definition_hash: str

    def __hash__(self) -> int:
        # Needed several times in a call.
        return hash(self.definition_hash)

    @classmethod
    def of(cls, tool: McpTool) -> Self:
        """Serializes the tool once; both its count and its hash use this text."""
        return cls.packing(tool.name, tool.model_dump_json())

    @classmethod
    def packing(cls, name: str, wire_json: str) -> Self:
        """Makes a definition from a tool that is already serialized."""
        return cls(name, zlib.compress(_bytes(wire_json), level=1), _hash(wire_json))

    @property
    def wire_json(self) -> str:
        return zlib.decompress(self.packed).decode("utf-8", "surrogatepass")

    @property
    def details(self) -> McpTool:
        """The parsed definition without hidden characters in its texts, cached for the most recently used tools."""
        return _recently_parsed(self)

    def parsed(self) -> McpTool:
        """The parsed definition, without hidden characters in its texts or the entry of a skill; not cached."""
        wire_json = self.wire_json
        sent = _read(wire_json)
        if self.is_skill:
            sent = McpTool(
                name=sent.name,
                description=sent.description,
                inputSchema=sent.input_schema,
                annotations=sent.annotations,
            )
        if not has_hidden(wire_json):
            return sent
        seen = tool_without_hidden(sent.model_dump(by_alias=True))
        return McpTool.model_validate(seen, by_name=False, by_alias=True)

    def sent(self) -> McpTool:
        """The definition exactly as its server sent it, for people and for counting."""
        return _read(self.wire_json)

    @property
    def is_skill(self) -> bool:
        """Whether it is that of a skill, which is read instead of called."""
        return self.name.startswith(SKILL_PREFIX) and _SKILL_MARK in self.wire_json

    @property
    def has_hidden_text(self) -> bool:
        """Whether it has characters that a person cannot see."""
        return has_hidden(self.wire_json)

    @property
    def readable_json(self) -> str:
        """The text that a model may read: the wire form without hidden characters in its texts."""
        return self.parsed().model_dump_json() if self.has_hidden_text or self.is_skill else self.wire_json


def _read(wire_json: str) -> McpTool:
    return McpTool.model_validate_json(wire_json, by_name=False, by_alias=True)


@lru_cache(maxsize=256)
def _recently_parsed(definition: Definition) -> McpTool:
    return definition.parsed()


@lru_cache(maxsize=16_384)
def shape_key(server: str, definition_hash: str, principal: str = LOCAL_PRINCIPAL.id) -> str:
    """The key of the result shape of a tool for one caller: two servers may define a tool alike but return different
    results, and a caller's results are not for others. It begins with the key of the tool, up to a dot.
    """
    tool = _hash(f"{server}\0{definition_hash}")
    return tool if principal == LOCAL_PRINCIPAL.id else f"{tool}.{_hash(principal)[:32]}"


def _hash(wire_json: str) -> str:
    return hashlib.sha256(_bytes(wire_json)).hexdigest()


def _bytes(text: str) -> bytes:
    # JSON may contain a lone surrogate; the reader decides how to handle it.
    return text.encode("utf-8", "surrogatepass")


class ServerStatus(StrEnum):
    """The state of a server. Only a running server's tools are called; they are also found while it starts again, and
    while it rests, because nothing has needed it for a while.
    """

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    LOGIN_NEEDED = "login needed"
    STOPPED = "stopped"
    RESTING = "starts when needed"

    @property
    def is_in_order(self) -> bool:
        """Whether it runs, or will when it is needed."""
        return self in (ServerStatus.RUNNING, ServerStatus.RESTING)

    @property
    def has_failed(self) -> bool:
        """Whether it does not run and no restart is in progress."""
        return self in (ServerStatus.FAILED, ServerStatus.LOGIN_NEEDED)


class McpServer(BaseModel):
    """An MCP server in the catalog."""

    id: str
    name: str
    fingerprint: str
    transport: str
    status: ServerStatus
    last_updated: datetime
    created_at: datetime


def _one_dimensional(array: Any) -> Any:
    # Compared by name: the library takes 12 MB, and a caller with an array has loaded it.
    if type(array).__name__ != "ndarray" or array.ndim != 1:
        raise ValueError("must be a one-dimensional array")
    return array


if TYPE_CHECKING:
    Vector = np.ndarray
else:
    Vector = Annotated[Any, AfterValidator(_one_dimensional)]


class Tool(BaseModel):
    """A tool of a server, with its cost."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: str
    mcpserver_id: str
    details: McpTool
    details_embedding: Vector | None = Field(default=None, exclude=True)
    token_count: int = Field(default=0, ge=0)
    last_updated: datetime
    created_at: datetime


@dataclass(frozen=True)
class ToolRow:
    """A tool to be stored, with the key of its vector."""

    definition: Definition
    token_count: int
    vector_key: str | None = None


@dataclass(frozen=True)
class DefinitionForm:
    """A definition as it is sent: its JSON, its cost, and how its arguments are expanded (JSON)."""

    definition_hash: str
    definition: str
    token_count: int
    groups: str


class BaseUpdateDetails(BaseModel):
    """Fields of a row to change; None leaves a field unchanged."""


class ToolUpdateDetails(BaseUpdateDetails):
    """Changes to a tool. New `details` are recounted in the same transaction, and the old embedding is removed."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    mcpserver_id: str | None = None
    details: McpTool | None = None
    details_embedding: Vector | None = None
    token_count: int | None = Field(default=None, ge=0)


class TokenMetrics(BaseModel):
    """The savings of a reply compared with sending every tool of every running server."""

    baseline_tokens: int = Field(ge=0, description="Total tokens for all running server tools")
    returned_tokens: int = Field(ge=0, description="Total tokens for returned/filtered tools")
    tokens_saved: int = Field(ge=0, description="Number of tokens saved by filtering")
    savings_percentage: float = Field(ge=0.0, le=100.0, description="Percentage of tokens saved")

    @classmethod
    def of(cls, baseline_tokens: int, returned_tokens: int) -> Self:
        saved = baseline_tokens - returned_tokens
        percentage = round(saved / baseline_tokens * 100, 2) if baseline_tokens else 0.0
        return cls(
            baseline_tokens=baseline_tokens,
            returned_tokens=returned_tokens,
            tokens_saved=saved,
            savings_percentage=percentage,
        )

    @model_validator(mode="after")
    def validate_metrics(self) -> Self:
        if self.tokens_saved != self.baseline_tokens - self.returned_tokens:
            raise ValueError("tokens_saved must equal baseline_tokens - returned_tokens")
        if self.baseline_tokens == 0:
            if self.savings_percentage != 0.0:
                raise ValueError("savings_percentage must be 0 when baseline_tokens is 0")
        elif abs(self.savings_percentage - self.tokens_saved / self.baseline_tokens * 100) > 0.01:
            raise ValueError("savings_percentage does not match calculated value")
        return self
