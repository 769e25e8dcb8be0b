"""Rehearses a script before it runs, with kinds in place of values, and reports what will certainly fail, also in the
values passed to tools. Pure.

It tracks the contents of the script's lists and dicts, and calls the script's functions to see their arguments. It goes
through the script three times: the contents of lists and dicts are known after the first two. Anything uncertain
passes, and so does a script that takes too many steps.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.scripts.call_sites import ArgumentSchemas, CallSites
from mcp_optimizer.scripts.names import Toolbox, by_any_name, parameters_of
from mcp_optimizer.scripts.problems import Problem, hint, problem, shown
from mcp_optimizer.scripts.rehearsal.calls import TooManySteps
from mcp_optimizer.scripts.rehearsal.lookups import CertainFailure, ResultChanges, elements
from mcp_optimizer.scripts.rehearsal.scopes import Frame, expected_keys, late_names
from mcp_optimizer.scripts.rehearsal.statements import Statements
from mcp_optimizer.scripts.rehearsal.values import (
    NUMBERS,
    UNKNOWN,
    Atom,
    Constant,
    OwnCollection,
    Result,
    Tuple,
    Value,
    called,
    constants,
    kind,
    kinds,
    named,
    of_type,
    texts,
)
from mcp_optimizer.scripts.stubs import (
    ListType,
    LiteralType,
    MapType,
    ObjectField,
    ObjectType,
    PlainType,
    PyType,
    TypeBudget,
    UnionType,
    result_type,
    takes_only_named,
    type_of_shape,
)

# Finds mistakes in the values that a script passes to a tool, as far as they are known. Constants are checked against
# the tool's own schema; for all other values, their kinds are compared, including list elements and dict keys.

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


_MOST_STEPS = 40_000
_MOST_PROBLEMS = 50
_EFFORT = 10_000
_ROUNDS = 3
_NO_SHAPES: Mapping[tuple[str, str], Shape] = MappingProxyType({})
_OF_PARALLEL = "parallel() takes a tool and a list of its arguments, nothing else."
_FOUND = ObjectType(tuple(ObjectField(name, PlainType("str"), True) for name in ("name", "server", "description")))


def rehearsed(
    tree: ast.Module, sites: CallSites, toolbox: Toolbox, seen: Mapping[tuple[str, str], Shape] = _NO_SHAPES
) -> list[Problem] | None:
    """The certain failures of a script; None if the rehearsal cannot be completed. `seen`: the result keys observed so
    far for tools that declare none, by server and own name. Failures based on them are only as certain as they are.
    """
    rehearsal = Rehearsal(tree, sites, toolbox, seen)
    try:
        return rehearsal.problems()
    except (TooManySteps, RecursionError):
        return None


class Rehearsal(Statements):
    """The rehearsal of one script."""

    def __init__(
        self, tree: ast.Module, sites: CallSites, toolbox: Toolbox, seen: Mapping[tuple[str, str], Shape]
    ) -> None:
        super().__init__(
            tree, _MOST_STEPS, ResultChanges(expected_keys(tree)), sites.bound, late_names(tree) - sites.given
        )
        self._tree = tree
        self._calls = sites
        self._toolbox = toolbox
        self._shapes = seen
        self._effort = TypeBudget(_EFFORT, keeps_open=True)
        self._types = ParameterTypes(self._effort)
        self._returns: dict[tuple[str, str], Value] = {}
        self._found: dict[tuple[int, str], Problem] = {}
        self._seen = set()

    def problems(self) -> list[Problem]:
        for left in reversed(range(_ROUNDS)):
            self._frames = [Frame(None)]
            with self._quietly(left > 0):
                self.block(self._tree.body)
                self.uncalled()
        return list(self._found.values())

    def _note(self, node: ast.AST, message: str, *, is_certain: bool = False) -> None:
        line = getattr(node, "lineno", 1)
        is_heard = is_certain or not self._first
        if is_heard and not self._quiet and len(self._found) < _MOST_PROBLEMS:
            self._found.setdefault((line, message), problem(line, message))

    def _tool(self, node: ast.expr) -> str:
        match node:
            case ast.Attribute(value=ast.Name(id=server) as of, attr=name) if self._calls.is_server(of):
                return f"{server}.{name}" if self._toolbox.tool(server, name) is not None else ""
        return ""

    def _tool_call(self, node: ast.Call) -> Value | None:
        if not self._calls.is_tool_call(node):
            return None
        match node.func:
            case ast.Attribute(value=ast.Name(id=server), attr=name):
                tool = self._toolbox.tool(server, name)
                return self._direct(node, tool, node.args) if tool is not None else self._rest(node)
            case ast.Name(id="find"):
                self._rest(node)
                return self._made(node, "list", frozenset({Result(_FOUND, "find")}))
            case ast.Name(id="call") if node.args:
                tool = self._named(node)
                return self._direct(node, tool, node.args[1:]) if tool is not None else self._rest(node)
            case ast.Name(id="parallel") if len(node.args) == 2:
                return self._parallel(node)
            case ast.Name(id="parallel") if not any(isinstance(arg, ast.Starred) for arg in node.args):
                if {keyword.arg for keyword in node.keywords}.isdisjoint({"name", "items", None}):
                    self._note(node, _OF_PARALLEL)
        return self._rest(node)

    def _named(self, node: ast.Call) -> CatalogTool | None:
        """The tool named by a call's first argument; with several possible tools, only their names are checked."""
        first = node.args[0]
        if spelling := self._tool(first):
            return self._toolbox.named(spelling)
        value = self.value(first)
        if kinds(value) and kinds(value).isdisjoint({"str", "tool"}):
            self._note(node, f"the first argument is the name of a tool, not {named(value)}.")
        names = texts(value) or []
        for name in names:
            if said := self._calls.unknown(name):
                self._note(node, said)
        return self._toolbox.named(names[0]) if len(names) == 1 else None

    def _returned(self, tool: CatalogTool) -> Value:
        if tool.key not in self._returns:
            declared = tool.record.details.output_schema
            found = result_type(declared, self._effort)
            if declared is None:
                found = type_of_shape(self._shapes.get(tool.key))
            self._returns[tool.key] = of_type(found, self._toolbox.spelling(tool))
        return self._returns[tool.key]

    def _direct(self, node: ast.Call, tool: CatalogTool, args: list[ast.expr]) -> Value:
        given: dict[str, Value] = {}
        is_all = not any(isinstance(arg, ast.Starred) for arg in args)
        values = [self.value(arg) for arg in args]
        if is_all and len(args) == 1 and not node.keywords:
            return self._packed(node, tool, values[0])
        if is_all:
            given = {one.python: value for one, value in zip(parameters_of(tool), values, strict=False)}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                given[keyword.arg] = value
            elif (inner := whole(value, node.lineno)) is not None:
                given.update(inner[0])
                is_all = is_all and inner[1]
            else:
                is_all = False
        self._check(node, tool, given, is_all)
        return self._returned(tool)

    def _packed(self, node: ast.Call, tool: CatalogTool, value: Value) -> Value:
        """A single argument, which may be the dict with all of them."""
        parameters = parameters_of(tool)
        names = {name for one in parameters for name in (one.own, one.python)}
        inner = whole(value, node.lineno)
        if inner is not None and not names.isdisjoint(inner[0]):
            self._check(node, tool, *inner)
        elif (
            parameters
            and kinds(value)
            and ("dict" not in kinds(value) or all(_has_others(one, names) for one in value))
        ):
            self._check(node, tool, {parameters[0].python: value}, True)
        return self._returned(tool)

    def _parallel(self, node: ast.Call) -> Value:
        tool = self._named(node)
        if node.keywords:
            self._note(node, _OF_PARALLEL)
        items = self.value(node.args[1])
        if kinds(items) == {"dict"}:
            self._note(node, "parallel() takes a list of dicts, one for each call, not one dict.")
        inner = self._elements(node, items)
        if tool is None:
            return UNKNOWN
        parameters = parameters_of(tool)
        for atom in inner:
            self._packed(node, tool, frozenset({atom})) if isinstance(atom, Result) else None
            if isinstance(atom, OwnCollection) and (made := whole(frozenset({atom}), node.lineno)) is not None:
                self._check(node, tool, *made)
        if kinds(inner) and "dict" not in kinds(inner) and parameters:
            self._check(node, tool, {parameters[0].python: inner}, True)
        return self._made(node, "list", self._returned(tool))

    def _check(self, node: ast.Call, tool: CatalogTool, given: Mapping[str, Value], is_all: bool) -> None:
        # In a loop's first round, an argument is certain only outside conditions.
        if self._quiet or (self._first and self._ways):
            return
        given_to = Arguments(self._calls.schemas, self._types, self.changes, node.lineno, not self._ways)
        for message in given_to.problems(tool, self._toolbox.spelling(tool), given, is_all):
            self._note(node, message, is_certain=True)


def _has_others(atom: Atom, names: Collection[str]) -> bool:
    """Whether an object in a result has keys that a tool does not accept, so that it cannot be a dict of arguments."""
    if not isinstance(atom, Result) or not isinstance(atom.type, ObjectType):
        return False
    return any(one.is_required and one.name not in names for one in atom.type.fields)
