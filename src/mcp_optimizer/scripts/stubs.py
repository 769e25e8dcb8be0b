"""Typed Python stubs of tools: short lines for a model to read. Pure.

An example is `kanban.list_cards(board_id: int, status?: 'open'|'done', limit=20) -> {total, cards[]: {title}}`: `?`
marks what may be omitted. No text from a server can leave its line or its quotes, and none is longer than a few hundred
characters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.compression.notes import opening
from mcp_optimizer.domain.json_schema import named, properties_of
from mcp_optimizer.scripts.names import Parameter, Toolboxes, parameters_of
from mcp_optimizer.scripts.python_types import (
    ANY,
    ListType,
    LiteralType,
    MapType,
    ObjectType,
    PlainType,
    PyType,
    TypeBudget,
    UnionType,
    without_none,
)

_MOST_SHOWN = 24
"""Parameters that a short stub shows before it says that there are more."""

_MOST_TYPED = 8
"""Optional parameters beyond these get no plain type: most names suggest it, and the check knows it."""

_CHOICES_SHOWN = 12
_LONGEST_CHOICE = 40
_LONGEST_DEFAULT = 24
_LONGEST_SAID = 80
_LEVELS = 2
"""Levels of nested objects that a short stub writes."""

_LONGEST_TYPE = 200
_LONGEST_STUB = 1_600
_MOST_REMEMBERED = 5_000
_SHORT_EFFORT = 1_000
"""Schema parts that are read for the stub of one tool."""

_LONGEST_NAME = 200

MORE = "..."


def short_stub(tool: CatalogTool, spelling: str, shape: str = "") -> str:
    """One line: how a script calls a tool, what it returns, if known, and what it is for."""
    schema = tool.record.details.input_schema
    parameters = parameters_of(tool)
    # An absurdly long parameter name does not belong in a reply.
    short = [parameter for parameter in parameters if len(parameter.python) <= _LONGEST_NAME]
    effort = TypeBudget(_SHORT_EFFORT)
    shown = [
        _shown(parameter, schema, effort, is_typed=at < _MOST_TYPED) for at, parameter in enumerate(short[:_MOST_SHOWN])
    ]
    if len(parameters) > len(shown) or _takes_others(schema):
        shown.append(MORE)
    while len(shown) > 1 and sum(map(len, shown)) > _LONGEST_STUB:
        shown[-2:] = [MORE]
    returned = f" -> {shape}" if shape else ""
    said = _line(opening(tool.record.details.description or ""))
    said = said if len(said) <= _LONGEST_SAID else f"{said[:_LONGEST_SAID].rsplit(' ', 1)[0]}{MORE}"
    return _line(f"{spelling}({', '.join(shown)}){returned}") + (f"  # {said}" if said else "")


def _shown(parameter: Parameter, schema: Mapping[str, Any], effort: TypeBudget, *, is_typed: bool) -> str:
    own = properties_of(schema)[parameter.own]
    if parameter.is_required:
        return f"{parameter.python}: {_brief(effort.type(own, schema))}"
    default = own.get("default") if isinstance(own, dict) else None
    if isinstance(default, bool | int | float) or (isinstance(default, str) and 0 < len(default) <= _LONGEST_DEFAULT):
        found = effort.type(own, schema)
        if isinstance(found, LiteralType):
            return f"{parameter.python}: {_brief(found)} = {_literal(default)}"
        return f"{parameter.python}={_literal(default)}"
    found = without_none(effort.type(own, schema))
    if not is_typed and isinstance(found, PlainType):
        return f"{parameter.python}?"
    return f"{parameter.python}?: {_brief(found)}"


def _brief(found: PyType) -> str:
    text = _written(found, _LEVELS)
    return text if len(text) <= _LONGEST_TYPE else _written(found, 0)


def _written(found: PyType, levels: int) -> str:
    match found:
        case PlainType(name):
            return "any" if found == ANY else name
        case LiteralType(values):
            shown = [_literal(value) for value in values[:_CHOICES_SHOWN]]
            return "|".join([*shown, MORE] if len(values) > len(shown) else shown)
        case ListType(item):
            return "list" if item == ANY else f"[{_written(item, levels)}]"
        case MapType():
            return "dict"
        case UnionType(parts):
            return "|".join(dict.fromkeys(_written(part, levels) for part in parts))
        case ObjectType(fields):
            if not levels:
                return "dict"
            inner = (
                f"{_key(one.name)}{'' if one.is_required else '?'}: {_written(without_none(one.type), levels - 1)}"
                for one in fields
            )
            return "{" + ", ".join(inner) + "}"


def _literal(value: str | float | bool | None) -> str:
    """A value as a Python literal; long texts are cut."""
    if isinstance(value, str):
        value = value if len(value) <= _LONGEST_CHOICE else value[:_LONGEST_CHOICE] + MORE
    return _line(repr(value))


def _key(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _LONGEST_CHOICE else _literal(name)


def _line(text: str) -> str:
    """A text on one line."""
    one = " ".join(text.split())
    return one if one.isprintable() else "".join(letter if letter.isprintable() else " " for letter in one)


def _takes_others(schema: Mapping[str, Any]) -> bool:
    """Whether a schema explicitly accepts further arguments, or describes them by other keywords."""
    is_open = schema.get("additionalProperties") not in (None, False) or bool(named(schema, "patternProperties"))
    return is_open or any(keyword in schema for keyword in ("allOf", "anyOf", "oneOf", "$ref", "then", "else", "if"))


def takes_only_named(schema: Mapping[str, Any]) -> bool:
    """Whether an argument that the schema does not name is a mistake."""
    return bool(properties_of(schema)) and not _takes_others(schema)


class StubWriter:
    """Short stubs for the tools of a view. Each stub is cached until its tool changes."""

    def __init__(self) -> None:
        self._toolboxes = Toolboxes()
        self._known: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def spelling(self, view: Snapshot, tool: CatalogTool) -> str:
        """A tool as scripts write it."""
        return self._toolboxes.of(view).spelling(tool)

    def stub(self, view: Snapshot, tool: CatalogTool, shape: str) -> str:
        """The stub of a tool."""
        key = (tool.record.definition_hash, self.spelling(view, tool), shape)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = short_stub(tool, key[1], shape)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return known
