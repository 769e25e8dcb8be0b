"""The Python types of tools' arguments and results, and typed stubs of tools: short lines for a model to read. Pure.

An example is `kanban.list_cards(board_id: int, status?: 'open'|'done', limit=20) -> {total, cards[]: {title}}`: `?`
marks what may be omitted. No text from a server can leave its line or its quotes, and none is longer than a few hundred
characters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.compression.notes import opening
from mcp_optimizer.compression.references import resolve
from mcp_optimizer.compression.shape_sources import is_envelope
from mcp_optimizer.compression.shapes import NOTHING, Shape
from mcp_optimizer.domain.json_schema import listed, named, properties_of, reference_of, required_of
from mcp_optimizer.scripts.names import Parameter, Toolboxes, parameters_of

# The Python types of tools' arguments and results, from JSON Schemas and from shapes of results. A schema may come
# from anyone. Anything uncertain, contradictory, too deep or too large is `ANY`, so a type never refuses a value that
# its schema accepts. `stubs` writes the types.

_MOST_NODES = 600
_DEEPEST = 8
_MOST_FIELDS = 120
_MOST_CHOICES = 60
_LONGEST_LITERAL = 200
_MOST_BRANCHES = 12
_ENVELOPE = "result"


@dataclass(frozen=True, slots=True)
class PlainType:
    """`str`, `int`, `float`, `bool`, `None` or `Any`."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralType:
    """One of several texts, numbers or truth values."""

    values: tuple[str | int | float | bool | None, ...]


@dataclass(frozen=True, slots=True)
class ListType:
    item: PyType


@dataclass(frozen=True, slots=True)
class MapType:
    """An object whose keys are data."""

    value: PyType


@dataclass(frozen=True, slots=True)
class ObjectField:
    name: str
    type: PyType
    is_required: bool


@dataclass(frozen=True, slots=True)
class ObjectType:
    """An object with known keys, and no other keys unless it is open."""

    fields: tuple[ObjectField, ...]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class UnionType:
    parts: tuple[PyType, ...]


PyType = PlainType | LiteralType | ListType | MapType | ObjectType | UnionType

ANY = PlainType("Any")
NONE = PlainType("None")
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_OPENING = ("patternProperties", "unevaluatedProperties", "if", "then", "else", "dependentSchemas", "not")
"""Keywords next to `properties` that give an object further rules."""


class TypeBudget:
    """Limits how many schema parts are read for one purpose, such as checking a script: a tool may have thousands of
    parameters with as many parts each. `keeps_open`: an open object keeps its known keys; otherwise it becomes a map of
    anything.
    """

    def __init__(self, most: int = _MOST_NODES, *, keeps_open: bool = False) -> None:
        self._left = most
        self._keeps_open = keeps_open

    def type(self, schema: Any, root: Mapping[str, Any]) -> PyType:
        """The type of the values that a schema accepts. References are resolved in `root`."""
        reader = _Reader(dict(root), min(self._left, _MOST_NODES), keeps_open=self._keeps_open)
        try:
            return reader.type(schema, 0, ())
        except RecursionError:
            return ANY
        finally:
            self._left -= reader.used


def type_of_schema(schema: Any, root: Mapping[str, Any]) -> PyType:
    """The type of one schema alone."""
    return TypeBudget().type(schema, root)


def result_type(output_schema: Mapping[str, Any] | None, effort: TypeBudget | None = None) -> PyType:
    """The declared result type of a tool, without the envelope that scripts do not see. `ANY` without a schema, and for
    a text in an envelope, because that may be JSON.
    """
    if output_schema is None:
        return ANY
    effort = effort or TypeBudget()
    if is_envelope(output_schema):
        inner = effort.type(properties_of(output_schema).get(_ENVELOPE), output_schema)
        return inner if isinstance(inner, ObjectType | MapType | ListType) else ANY
    found = effort.type(output_schema, output_schema)
    return found if isinstance(found, ObjectType | MapType) else ANY


def type_of_shape(shape: Shape | None) -> PyType:
    """The keys that were seen in results. A few results do not prove the types of the values."""
    if shape is None or shape == NOTHING or shape.scalars:
        return ANY
    is_list, is_map = shape.items is not None, shape.values is not None
    if is_list + is_map + bool(shape.objects) > 1 and not (is_map and not shape.members and not is_list):
        return ANY
    if shape.items is not None:
        return ListType(type_of_shape(shape.items))
    if shape.values is not None:
        return MapType(type_of_shape(shape.values))
    if not shape.members or shape.has_more:
        return ANY
    fields = (ObjectField(name, type_of_shape(of), seen >= shape.objects) for name, (of, seen) in shape.members.items())
    return ObjectType(tuple(fields))


class _Reader:
    """Reads one schema, within a budget of nodes."""

    def __init__(self, root: dict[str, Any], most: int, *, keeps_open: bool) -> None:
        self._root = root
        self._keeps_open = keeps_open
        self._left = self._most = most

    @property
    def used(self) -> int:
        return min(self._most, self._most - self._left)

    def type(self, schema: Any, depth: int, inside: tuple[str, ...]) -> PyType:
        """`inside`: the references followed on the way here."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > _DEEPEST:
            return ANY
        if (reference := reference_of(schema)) is not None:
            # A type that contains itself would need a name, and a stub this deep helps no reader.
            if reference in inside or len(inside) > _DEEPEST:
                return ANY
            return self.type(resolve(self._root, reference), depth, (*inside, reference))
        if "allOf" in schema:
            parts = listed(schema, "allOf")
            is_alone = len(parts) == 1 and not properties_of(schema)
            return self.type(parts[0], depth + 1, inside) if is_alone else ANY
        if "const" in schema or "enum" in schema:
            return _choice([schema["const"]] if "const" in schema else listed(schema, "enum"))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._one_of(schema, listed(schema, keyword), depth, inside)
        return self._of_kind(schema, depth, inside)

    def _one_of(self, schema: dict[str, Any], branches: Sequence[Any], depth: int, inside: tuple[str, ...]) -> PyType:
        if not branches or len(branches) > _MOST_BRANCHES or properties_of(schema):
            return ANY
        kind = {"type": schema["type"]} if "type" in schema else {}
        return one_of(
            self.type({**kind, **branch} if isinstance(branch, dict) else branch, depth + 1, inside)
            for branch in branches
        )

    def _of_kind(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> PyType:
        kind = schema.get("type")
        if kind is None and properties_of(schema):
            kind = "object"
        if isinstance(kind, list):
            if len(kind) > _MOST_BRANCHES:
                return ANY
            return one_of(self._of_kind({**schema, "type": one}, depth, inside) for one in kind if isinstance(one, str))
        if kind == "object":
            return self._object(schema, depth, inside)
        if kind == "array":
            items = schema.get("items")
            is_plain = isinstance(items, dict) and "prefixItems" not in schema
            return ListType(self.type(items, depth + 1, inside) if is_plain else ANY)
        return PlainType(_PLAIN[kind]) if isinstance(kind, str) and kind in _PLAIN else ANY

    def _object(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> PyType:
        properties, others = properties_of(schema), schema.get("additionalProperties")
        if not properties:
            is_map = isinstance(others, dict) and not named(schema, "patternProperties")
            return MapType(self.type(others, depth + 1, inside) if is_map else ANY)
        is_open = others not in (None, False) or any(keyword in schema for keyword in _OPENING)
        if (is_open and not self._keeps_open) or len(properties) > _MOST_FIELDS:
            return MapType(ANY)
        required = frozenset(required_of(schema))
        fields = tuple(
            ObjectField(name, self.type(of, depth + 1, inside), name in required) for name, of in properties.items()
        )
        return ObjectType(fields, is_open) if self._left > 0 else MapType(ANY)


def one_of(parts: Iterable[PyType]) -> PyType:
    """The union of several types, with None last; `ANY` if any of them is."""
    flat: dict[PyType, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.parts if isinstance(part, UnionType) else (part,)))
    if not flat or ANY in flat:
        return ANY
    ordered = tuple(sorted(flat, key=lambda part: part == NONE))
    return ordered[0] if len(ordered) == 1 else UnionType(ordered)


def without_none(found: PyType) -> PyType:
    """The type without None."""
    return one_of(part for part in found.parts if part != NONE) if isinstance(found, UnionType) else found


def _choice(values: Sequence[Any]) -> PyType:
    if not values:
        return ANY
    is_plain = all(isinstance(value, str | int | float | bool | None) for value in islice(values, _MOST_CHOICES + 1))
    if not is_plain or len(values) > _MOST_CHOICES:
        return PlainType("str") if all(isinstance(value, str) for value in values) else ANY
    if any(isinstance(value, str) and len(value) > _LONGEST_LITERAL for value in values):
        return PlainType("str") if all(isinstance(value, str) for value in values) else ANY
    return LiteralType(tuple(values))


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
