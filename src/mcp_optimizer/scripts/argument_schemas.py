"""The schemas of single arguments of tools, to compare what a script gives with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.validation import SchemaCheck, parts
from mcp_optimizer.domain.json_schema import properties_of

_MOST_PARTS = 100_000
"""Parts of schemas that arguments are compared with; each costs some microseconds."""

_ENVELOPING = frozenset({"definitions", "$defs", "$schema"})


class ArgumentSchemas:
    """The schemas of single arguments, each made once for a script; after so many parts of them, no more are made."""

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, str], str], SchemaCheck | None] = {}
        self._left = _MOST_PARTS

    def of(self, tool: CatalogTool, name: str) -> SchemaCheck | None:
        if (tool.key, name) not in self._made:
            self._made[tool.key, name] = self._make(tool.record.details.input_schema, name)
        return self._made[tool.key, name]

    def _make(self, schema: Mapping[str, Any], name: str) -> SchemaCheck | None:
        around = {key: schema[key] for key in _ENVELOPING if key in schema}
        of_one = {**around, "type": "object", "properties": {name: properties_of(schema).get(name, True)}}
        self._left -= parts(of_one, self._left)
        return SchemaCheck(of_one) if self._left > 0 else None
