"""Finds mistakes in the values that a script passes to a tool, as far as they are known. Pure.

Constants are checked against the tool's own schema; for all other values, their kinds are compared, including list
elements and dict keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.scripts.call_sites import ArgumentSchemas
from mcp_optimizer.scripts.names import by_any_name, parameters_of
from mcp_optimizer.scripts.problems import hint, shown
from mcp_optimizer.scripts.python_types import (
    ListType,
    LiteralType,
    MapType,
    ObjectType,
    PlainType,
    PyType,
    TypeBudget,
    UnionType,
)
from mcp_optimizer.scripts.rehearsal.lookups import CertainFailure, ResultChanges, elements
from mcp_optimizer.scripts.rehearsal.values import (
    NUMBERS,
    Atom,
    Constant,
    OwnCollection,
    Tuple,
    Value,
    called,
    constants,
    kind,
    kinds,
    named,
)
from mcp_optimizer.scripts.stubs import takes_only_named

_DEEPEST = 4
_TAKEN = {"str": {"str"}, "int": {"int", "number", "float"}, "float": {"int", "float", "number"}, "bool": {"bool"}}
_JSON = NUMBERS | {"str", "list", "dict", "tuple", "None"}
_NO_JSON = frozenset(
    {"set", "date", "datetime", "function", "tool", "coroutine", "dict_keys", "dict_values", "dict_items", "range"}
)
_READABLE = {"str": "a str", "int": "an int", "float": "a number", "bool": "a bool", "None": "None"}


class ParameterTypes:
    """The types of parameters, each read once."""

    def __init__(self, effort: TypeBudget) -> None:
        self._effort = effort
        self._types: dict[tuple[tuple[str, str], str], PyType] = {}

    def of(self, tool: CatalogTool, own: str) -> PyType:
        key = (tool.key, own)
        if key not in self._types:
            schema = tool.record.details.input_schema
            self._types[key] = self._effort.type(properties_of(schema).get(own), schema)
        return self._types[key]


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call."""

    schemas: ArgumentSchemas
    types: ParameterTypes
    changes: ResultChanges
    line: int
    """The line of the call: keys added to a dict after it do not count."""
    is_certain: bool
    """No condition chooses between several constants: every one of them is passed at some point."""

    def problems(self, tool: CatalogTool, spelling: str, given: Mapping[str, Value], is_all: bool) -> Iterator[str]:
        """Problems, with the names that the script uses. `is_all`: these are all the arguments."""
        known = by_any_name(tool)
        for name, value in given.items():
            if (parameter := known.get(name)) is None:
                if takes_only_named(tool.record.details.input_schema):
                    others = [one.python for one in parameters_of(tool) if one.own not in given]
                    yield f"{spelling} has no argument {shown(name)}.{hint(name, others, 'others')}"
                continue
            if found := self._problem(tool, parameter.own, value, is_needed=parameter.is_required):
                yield f"{spelling}, argument {shown(name)}: {found}"
        if is_all:
            there = {known[name].own for name in given if name in known}
            for parameter in parameters_of(tool):
                if parameter.is_required and parameter.own not in there:
                    yield f"{spelling} needs the argument {shown(parameter.python)}."

    def _problem(self, tool: CatalogTool, own: str, value: Value, *, is_needed: bool) -> str:
        if kinds(value) == {"None"} and not is_needed:
            return ""
        fixed = list(constants(value))
        if fixed and len(fixed) == len(value):
            check = self.schemas.of(tool, own)
            bad = [one for one in fixed if check is not None and not check.admits({own: one.value})]
            for one in bad if self.is_certain or len(bad) == len(fixed) else ():
                if check is not None:
                    return next((message for _, message in check.problems({own: one.value}, 1)), "")
            return ""
        return self.mismatch(value, self.types.of(tool, own))

    def mismatch(self, value: Value, wanted: PyType, depth: int = 0) -> str:
        """Why no possibility of a value fits; "" if one may."""
        if not value or depth > _DEEPEST or not (found := kinds(value)):
            return ""
        if found <= _NO_JSON:
            is_single = found & {"function", "tool", "coroutine"}
            advice = (
                ": write .isoformat()" if found <= {"date", "datetime"} else "" if is_single else ": write list(...)"
            )
            return f"{named(value)} cannot be given to a tool{advice}."
        if isinstance(wanted, LiteralType) and (wrong := _not_chosen(value, wanted, self.is_certain)):
            return wrong
        said = [self._misfit(atom, wanted, depth) for atom in value]
        return said[0] if all(said) else ""

    def _misfit(self, atom: Atom, wanted: PyType, depth: int) -> str:
        of = kind(atom)
        match wanted:
            case UnionType(parts):
                said = [self._misfit(atom, part, depth) for part in parts]
                return next((one for one in said if "fits inside" not in one), said[0]) if all(said) else ""
            case PlainType("Any"):
                return ""
            case PlainType("None"):
                return "" if of == "None" else f"takes None, not {called(atom)}."
            case PlainType(name):
                return "" if of in _TAKEN[name] or of not in _JSON else f"takes {_READABLE[name]}, not {called(atom)}."
            case LiteralType(values):
                fits = {type(value).__name__ for value in values} | {"None"}
                return "" if of in fits or of not in _JSON else f"takes one of {_few(values)}, not {called(atom)}."
            case ListType(item):
                if of not in ("list", "tuple"):
                    return f"takes a list, not {called(atom)}." if of in _JSON else ""
                return self._items(atom, item, depth)
            case MapType() | ObjectType():
                if of != "dict":
                    return f"takes a dict, not {called(atom)}." if of in _JSON else ""
                return self._members(atom, wanted, depth) if isinstance(wanted, ObjectType) else ""

    def _items(self, atom: Atom, wanted: PyType, depth: int) -> str:
        inner = elements(atom, self.changes)
        if isinstance(inner, CertainFailure):
            return ""
        if isinstance(atom, Tuple):
            return next((said for part in atom.parts if (said := self.mismatch(part, wanted, depth + 1))), "")
        said = self.mismatch(inner, wanted, depth + 1)
        return f"its elements: {said}" if said else ""

    def _members(self, atom: Atom, wanted: ObjectType, depth: int) -> str:
        """A dict of the script: checks its keys, if all are known, and their values."""
        if not isinstance(atom, OwnCollection) or atom.site.key or atom.site.item:
            return ""
        fields = {one.name: one for one in wanted.fields}
        for key, value in atom.site.keys.items():
            if key not in fields:
                if not wanted.is_open and atom.site.lines.get(key, 0) < self.line:
                    return f"there is no key {shown(str(key))}.{hint(str(key), fields, 'keys')}"
            elif said := self.mismatch(value, fields[key].type, depth + 1):
                return f"the key {shown(str(key))}: {said}"
        missing = [name for name, one in fields.items() if one.is_required and name not in atom.site.keys]
        return f"the key {shown(missing[0])} is missing." if missing else ""


def _not_chosen(value: Value, wanted: LiteralType, is_certain: bool) -> str:
    """Why a constant is not one of the allowed values; with `is_certain`, every possible constant must be one."""
    known = {(type(one).__name__, one) for one in wanted.values}
    bad = [one for one in constants(value) if (one.kind, one.value) not in known]
    are_all = all(isinstance(atom, Constant) for atom in value) and (is_certain or len(bad) == len(value))
    return f"takes one of {_few(wanted.values)}, not {shown(str(bad[0].value))}." if bad and are_all else ""


def _few(values: Sequence[object]) -> str:
    return ", ".join(repr(one)[:40] for one in values[:12]) + (", ..." if len(values) > 12 else "")


def whole(value: Value, line: int) -> tuple[Mapping[str, Value], bool] | None:
    """The contents of a dict of arguments, and whether they are complete; None if the script did not make the dict."""
    found = [atom for atom in value if isinstance(atom, OwnCollection)]
    if len(found) != 1 or len(value) != 1 or found[0].site.kind != "dict":
        return None
    site = found[0].site
    known = {key: put for key, put in site.keys.items() if isinstance(key, str) and site.lines.get(key, 0) < line}
    return known, not site.key and not site.item and bool(known)
