"""Rehearses a script before it runs, with kinds in place of values, and reports what will certainly fail. Pure.

It tracks the contents of the script's lists and dicts, and calls the script's functions to see their arguments. It goes
through the script three times: the contents of lists and dicts are known after the first two. Anything uncertain
passes, and so does a script that takes too many steps.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from types import MappingProxyType

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.scripts.call_sites import CallSites
from mcp_optimizer.scripts.names import Toolbox, parameters_of
from mcp_optimizer.scripts.problems import Problem, problem
from mcp_optimizer.scripts.python_types import (
    ObjectField,
    ObjectType,
    PlainType,
    TypeBudget,
    result_type,
    type_of_shape,
)
from mcp_optimizer.scripts.rehearsal.calls import TooManySteps
from mcp_optimizer.scripts.rehearsal.lookups import ResultChanges
from mcp_optimizer.scripts.rehearsal.scopes import Frame, expected_keys, late_names
from mcp_optimizer.scripts.rehearsal.statements import Statements
from mcp_optimizer.scripts.rehearsal.tool_arguments import Arguments, ParameterTypes, whole
from mcp_optimizer.scripts.rehearsal.values import (
    UNKNOWN,
    Atom,
    OwnCollection,
    Result,
    Value,
    kinds,
    named,
    of_type,
    texts,
)

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
