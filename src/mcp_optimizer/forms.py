"""The forms in which a tool's definition is sent: signature, compressed schema, or as its server wrote it.

Each form of a definition is made and counted once and then remembered. None is ever larger than the original:
where a form would be, the original is sent instead. Called by the gateway; pure but for that memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.compress import CompressedTool, Dialect, compress
from mcp_optimizer.compression.groups import GroupPlan
from mcp_optimizer.compression.signature import Notes, signature
from mcp_optimizer.db.models import McpTool
from mcp_optimizer.token_counter import TokenCounter

_MOST_REMEMBERED = 20_000

_K = TypeVar("_K")
_V = TypeVar("_V")


class Detail(StrEnum):
    """How much of a definition a reply carries."""

    SIGNATURE = "signature"
    SCHEMA = "schema"
    FULL = "full"


@dataclass(frozen=True)
class Form:
    """A definition as it is sent, and what it costs."""

    definition: McpTool
    tokens: int


Groups = Mapping[str, Mapping[str, Sequence[str]]]
"""By tool: the parameter groups that the user wants."""


class ToolForms:
    """Makes and remembers the forms of definitions."""

    def __init__(
        self,
        counter: TokenCounter,
        notes: Notes = Notes.SENTENCE,
        dialect: Dialect = Dialect.PLAIN,
        groups: Groups | None = None,
    ) -> None:
        self._counter = counter
        self._notes = notes
        self._dialect = dialect
        self._groups = groups or {}
        self._forms: OrderedDict[tuple[str, str, Detail], Form] = OrderedDict()
        self._compressed: OrderedDict[str, CompressedTool] = OrderedDict()

    def form(self, tool: CatalogTool, detail: Detail) -> Form:
        original = Form(tool.definition, tool.tokens)
        # Not counted (0) is not comparable: what the tokenizer choked on is sent as its server wrote it.
        if detail is Detail.FULL or not tool.tokens:
            return original
        key = (tool.record.definition_hash, tool.name, detail)
        if (known := self._forms.get(key)) is not None:
            self._forms.move_to_end(key)
            return known
        made = self._signature(tool) if detail is Detail.SIGNATURE else self._schema(tool)
        tokens = self._counter.count_tool_tokens(made)
        form = Form(made, tokens) if tokens < tool.tokens else original
        _remember(self._forms, key, form)
        return form

    def compressed(self, tool: CatalogTool) -> CompressedTool:
        """The tool under its own name, compressed; with the plan that leads its arguments back."""
        key = tool.record.definition_hash
        if (known := self._compressed.get(key)) is None:
            details = tool.record.details
            if not tool.record.token_count:
                return CompressedTool(details, tokens=0, baseline_tokens=0)
            wanted = self._groups.get(details.name, {})
            known = compress(details, self._counter.count_tokens, self._dialect, wanted)
            _remember(self._compressed, key, known)
        return known

    def plan(self, tool: CatalogTool) -> GroupPlan:
        return self.compressed(tool).groups

    def _signature(self, tool: CatalogTool) -> McpTool:
        text = signature(tool.record.details, self._notes)
        return McpTool(name=tool.name, description=text, inputSchema={"type": "object"})

    def _schema(self, tool: CatalogTool) -> McpTool:
        return self.compressed(tool).tool.model_copy(update={"name": tool.name})


def _remember(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    memory[key] = value
    if len(memory) > _MOST_REMEMBERED:
        memory.popitem(last=False)
