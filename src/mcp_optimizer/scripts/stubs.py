"""Typed Python stubs of tools: a short line that a model reads, and exact declarations for the type checker. Pure.

A short one is `kanban.list_cards(board_id: int, status?: 'open'|'done', limit=20) -> {total, cards[]: {title}}`: `?`
marks what may be left out. No text of a server leaves its line or its quotes, and none is longer than a few hundred
characters.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.compression.notes import opening
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.domain.json_schema import named, properties_of
from mcp_optimizer.scripts.names import Parameter, Toolbox, Toolboxes, parameters_of
from mcp_optimizer.scripts.types_of import (
    ANY,
    Effort,
    ListType,
    LiteralType,
    MapType,
    ObjectType,
    PlainType,
    PyType,
    UnionType,
    result_type,
    type_of_shape,
    without_none,
)

_MOST_SHOWN = 24
"""Parameters that a short stub shows; it says that there are more."""

_MOST_TYPED = 8
"""Optional parameters after these are shown without a plain type: most names tell it, and the check knows it."""

_CHOICES_SHOWN = 12
_LONGEST_CHOICE = 40
_LONGEST_DEFAULT = 24
_LONGEST_SAID = 80
_LEVELS = 2
"""Objects inside each other that a short stub writes."""

_LONGEST_TYPE = 200
_LONGEST_STUB = 1_600
_MOST_REMEMBERED = 5_000
_SHORT_EFFORT = 1_000
_EXACT_EFFORT = 10_000
"""Parts of schemas that are read for the short stub of one tool, and for the check of one script."""

_MOST_EXACT = 300
_LONGEST_NAME = 200
"""A tool with more parameters, or a longer name of one, is not checked."""

MORE = "..."


def short_stub(tool: CatalogTool, spelling: str, shape: str = "") -> str:
    """One line: how a script calls a tool, what it returns if that is known, and what it is for."""
    schema = tool.record.details.input_schema
    parameters = parameters_of(tool)
    # A parameter with a name beyond all reason has no place in a reply.
    short = [parameter for parameter in parameters if len(parameter.python) <= _LONGEST_NAME]
    effort = Effort(_SHORT_EFFORT)
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


def _shown(parameter: Parameter, schema: Mapping[str, Any], effort: Effort, *, is_typed: bool) -> str:
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
    """A value as Python writes it; long texts are cut."""
    if isinstance(value, str):
        value = value if len(value) <= _LONGEST_CHOICE else value[:_LONGEST_CHOICE] + MORE
    return _line(repr(value))


def _key(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _LONGEST_CHOICE else _literal(name)


def _line(text: str) -> str:
    """A text that stays on its line."""
    one = " ".join(text.split())
    return one if one.isprintable() else "".join(letter if letter.isprintable() else " " for letter in one)


def _takes_others(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says itself that further arguments are welcome, or describes them in another way."""
    is_open = schema.get("additionalProperties") not in (None, False) or bool(named(schema, "patternProperties"))
    return is_open or any(keyword in schema for keyword in ("allOf", "anyOf", "oneOf", "$ref", "then", "else", "if"))


def takes_only_named(schema: Mapping[str, Any]) -> bool:
    """Whether an argument that the schema does not name is a mistake."""
    return bool(properties_of(schema)) and not _takes_others(schema)


@dataclass(frozen=True)
class ResultKeys:
    """A TypedDict of the exact stubs: whose result it is part of, and its keys."""

    tool: str
    keys: tuple[str, ...]
    is_learned: bool


@dataclass
class ExactStubs:
    """Declarations for the type checker of the tools that one script uses. Their names are ours alone."""

    most: int
    """Characters of all results' declarations together; those of further tools are Any."""
    results: dict[str, ResultKeys] = field(default_factory=dict)
    """By the name of the TypedDict."""
    _lines: list[str] = field(default_factory=list)
    _used: int = 0
    _effort: Effort = field(default_factory=lambda: Effort(_EXACT_EFFORT))

    def write(self, toolbox: Toolbox, used: Sequence[tuple[str, str]], shapes: Mapping[tuple[str, str], Shape]) -> str:
        """The stubs of the tools that a script uses, by server and tool as it spells them. `shapes`: what was learned
        of the results of those that declare nothing, by server and own name.
        """
        methods: dict[str, list[str]] = {}
        for server, name in used:
            tool = toolbox.tool(server, name)
            if tool is not None:
                returned = self._returned(tool, f"{server}.{name}", shapes.get(tool.key))
                methods.setdefault(server, []).append(
                    f"    def {name}({_exact(tool, self._effort)}) -> {returned}: ..."
                )
        for server, of_server in methods.items():
            self._lines += [f"class {SERVER}{server}:", *of_server, f"{server}: {SERVER}{server}"]
        return "\n".join(self._lines)

    def _returned(self, tool: CatalogTool, spelling: str, shape: Shape | None) -> str:
        declared = result_type(tool.record.details.output_schema, self._effort)
        is_learned = declared == ANY and tool.record.details.output_schema is None
        found = type_of_shape(shape) if is_learned else declared
        before, names = len(self._lines), list(self.results)
        text = self._exact(found, spelling, is_learned=is_learned)
        size = sum(map(len, self._lines[before:]))
        if self._used + size > self.most:
            self._lines[before:] = []
            self.results = {name: self.results[name] for name in names}
            return "Any"
        self._used += size
        return text

    def _exact(self, found: PyType, tool: str, *, is_learned: bool) -> str:
        match found:
            case PlainType(name):
                # Numbers are whole or not as they come, and None is as good as left out.
                return name if name in ("str", "int", "bool") else "Any"
            case LiteralType(values):
                return "str" if all(isinstance(value, str) for value in values) else "Any"
            case ListType(item):
                return f"list[{self._exact(item, tool, is_learned=is_learned)}]"
            case MapType(value):
                return f"dict[str, {self._exact(value, tool, is_learned=is_learned)}]"
            case UnionType():
                there = without_none(found)
                return "Any" if isinstance(there, UnionType) else self._exact(there, tool, is_learned=is_learned)
            case ObjectType(fields):
                parts = [
                    f"{_quoted(one.name)}: NotRequired[{self._exact(one.type, tool, is_learned=is_learned)}]"
                    for one in fields
                ]
                name = f"{LEARNED if is_learned else DECLARED}{len(self.results)}"
                self.results[name] = ResultKeys(tool, tuple(one.name for one in fields), is_learned)
                self._lines.append(f'{name} = TypedDict("{name}", {{{", ".join(parts)}}})')
                return name


SERVER, DECLARED, LEARNED = "McpServer_", "McpDeclared_", "McpLearned_"


def _exact(tool: CatalogTool, effort: Effort) -> str:
    """The parameters of a method: those that are needed first, all with or without their names."""
    schema = tool.record.details.input_schema
    parameters = parameters_of(tool)
    if len(parameters) > _MOST_EXACT or any(len(parameter.python) > _LONGEST_NAME for parameter in parameters):
        return "self, /, *given: Any, **others: Any"
    taken = {parameter.python for parameter in parameters}
    parts = [
        next(name for name in ("self", "self_", "_self", *map("self_{}".format, range(2, 999))) if name not in taken)
    ]
    for parameter in parameters:
        given = _argument(effort.type(properties_of(schema)[parameter.own], schema))
        parts.append(f"{parameter.python}: {given}{'' if parameter.is_required else ' = ...'}")
    return ", ".join(parts if takes_only_named(schema) else [*parts, "**others: Any"])


def _argument(found: PyType) -> str:
    match found:
        case PlainType(name):
            return name
        case LiteralType(values):
            are_texts = all(isinstance(value, str) for value in values)
            return f"Literal[{', '.join(map(_quoted, map(str, values)))}]" if are_texts else "Any"
        case ListType():
            return "list[Any]"
        case MapType() | ObjectType():
            return "dict[str, Any]"
        case UnionType(parts):
            return " | ".join(dict.fromkeys(map(_argument, parts)))


def _quoted(text: str) -> str:
    """A text as a literal that no character of it can end; JSON's escapes are Python's, halves of pairs included."""
    return json.dumps(text)


class StubWriter:
    """Short stubs of the tools of a view. Each is written once as long as it stays the same."""

    def __init__(self) -> None:
        self._toolboxes = Toolboxes()
        self._known: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def spelling(self, view: Snapshot, tool: CatalogTool) -> str:
        """A tool as scripts write it."""
        return self._toolboxes.of(view).spelling(tool)

    def stub(self, view: Snapshot, tool: CatalogTool, shape: str) -> str:
        """A tool's line."""
        key = (tool.record.definition_hash, self.spelling(view, tool), shape)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = short_stub(tool, key[1], shape)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return known
