"""Finds the tool calls in a script's syntax tree and the mistakes in their arguments. Pure.

Literal arguments, and names that are bound once to a constant, are checked against the tool's own schema in the same
way as the gateway checks the call itself, so nothing is refused here that the gateway would accept.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.validation import SchemaCheck, parts
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.names import Parameter, Toolbox, by_any_name, parameters_of, python_name
from mcp_optimizer.scripts.problems import Problem, hint, problem, shown
from mcp_optimizer.scripts.stubs import takes_only_named
from mcp_optimizer.scripts.syntax import bound_names

_MOST_SCHEMA_PARTS = 100_000
"""Schema parts that arguments may be compared with; each costs a few microseconds."""

_ENVELOPING = frozenset({"definitions", "$defs", "$schema"})


class ArgumentSchemas:
    """The schemas of single arguments, each built once per script; beyond a limit on their parts, no more are built."""

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, str], str], SchemaCheck | None] = {}
        self._left = _MOST_SCHEMA_PARTS

    def of(self, tool: CatalogTool, name: str) -> SchemaCheck | None:
        if (tool.key, name) not in self._made:
            self._made[tool.key, name] = self._make(tool.record.details.input_schema, name)
        return self._made[tool.key, name]

    def _make(self, schema: Mapping[str, Any], name: str) -> SchemaCheck | None:
        around = {key: schema[key] for key in _ENVELOPING if key in schema}
        of_one = {**around, "type": "object", "properties": {name: properties_of(schema).get(name, True)}}
        self._left -= parts(of_one, self._left)
        return SchemaCheck(of_one) if self._left > 0 else None


_MOST_CONSTANT_NODES = 2_000
_DEEPEST_CONSTANT = 8


class Constants:
    """The names that a script binds exactly once."""

    def __init__(self, nodes: Iterable[ast.AST], bound: Iterable[str]) -> None:
        found, times = list(nodes), Counter(bound)
        self._parents = {child: node for node in found for child in ast.iter_child_nodes(node)}
        self._values: dict[str, ast.expr] = {}
        self._uses: dict[str, list[ast.Name]] = {}
        for node in found:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._uses.setdefault(name, []).append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if times[name] == 1:
                    self._values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if times[name] == 1:
                    self._values[name] = value

    def resolved(self, node: ast.expr) -> ast.expr | None:
        """The expression with constant names replaced by their values; None if the result gets too large."""
        budget = [_MOST_CONSTANT_NODES]
        found = self._resolved(node, 0, budget)
        return found if budget[0] > 0 else None

    def _resolved(self, node: ast.expr, depth: int, budget: list[int]) -> ast.expr:
        budget[0] -= 1
        if budget[0] <= 0 or depth > _DEEPEST_CONSTANT:
            return node
        match node:
            case ast.Name(id=name) if (value := self._values.get(name)) is not None and self._is_constant(name, value):
                return self._resolved(value, depth + 1, budget)
            case ast.List(elts=parts):
                return ast.List([self._resolved(part, depth + 1, budget) for part in parts], ast.Load())
            case ast.Dict(keys=keys, values=values):
                return ast.Dict(keys, [self._resolved(value, depth + 1, budget) for value in values])
        return node

    def _is_constant(self, name: str, value: ast.expr) -> bool:
        """Whether the value of a name can never change: it is immutable, or the script only reads it."""
        if isinstance(value, ast.Constant | ast.UnaryOp):
            return True
        if not isinstance(value, ast.List | ast.Dict | ast.ListComp):
            return False
        return all(map(self._is_only_read, self._uses.get(name, ())))

    def _is_only_read(self, use: ast.Name) -> bool:
        parent = self._parents.get(use)
        match parent:
            case ast.keyword() | ast.For() | ast.comprehension() | ast.Dict() | ast.List():
                return True
            case ast.Subscript(ctx=ast.Load(), value=value):
                # An element may be an object that the script changes.
                return value is use and not isinstance(self._parents.get(parent), ast.Subscript | ast.Attribute)
            case ast.Call(func=ast.Name(id="parallel" | "len"), args=args):
                return use in args
        return False


_BY_NAME = ("call", "parallel")
_LONGEST_LITERAL = 20_000
_MOST_PROBLEMS = 50
_MOST_OF_A_CALL = 10
"""Mistakes reported for one call; `_MOST_PROBLEMS` is the limit for a whole script."""

_LAST_PART = regex(r"__|[./:]")


@dataclass(frozen=True)
class CallSite:
    """One call of a tool."""

    tool: CatalogTool
    node: ast.Call


class CallSites:
    """All tool calls of one script."""

    def __init__(self, tree: ast.Module, toolbox: Toolbox, variables: Collection[str] = ()) -> None:
        self._toolbox = toolbox
        self.nodes = list(ast.walk(tree))
        names = [*bound_names(self.nodes), *variables]
        self.bound = frozenset(names)
        self.given = frozenset(variables)
        """The variables that are passed to the script."""
        self._constants = Constants(self.nodes, names)
        self.used: dict[tuple[str, str], None] = {}
        """The tools that the script names, by server and tool as the script spells them."""
        self.problems: list[Problem] = []
        self.sites: list[CallSite] = []
        self.schemas = ArgumentSchemas()
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                self._read_attribute(node)
        for node in self.nodes:
            if isinstance(node, ast.Call) and len(self.problems) < _MOST_PROBLEMS:
                self._read_call(node)

    def is_server(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._toolbox.servers and node.id not in self.bound

    def is_tool_call(self, node: ast.expr) -> bool:
        """Whether a node calls a tool, directly or by name."""
        if not isinstance(node, ast.Call):
            return False
        into = node.func
        if isinstance(into, ast.Attribute):
            return self.is_server(into.value)
        return isinstance(into, ast.Name) and into.id in (*_BY_NAME, "find") and into.id not in self.bound

    def _read_attribute(self, node: ast.Attribute) -> None:
        if not self.is_server(node.value):
            return
        assert isinstance(node.value, ast.Name)
        server = node.value.id
        if self._toolbox.tool(server, node.attr) is not None:
            self.used[server, node.attr] = None
            return
        elsewhere = [name for name, tools in self._toolbox.servers.items() if node.attr in tools]
        said = hint(node.attr, self._toolbox.servers[server], "tools")
        if elsewhere:
            said = f" Did you mean {elsewhere[0]}.{node.attr}?"
        self._note(node, f"{server} has no tool {shown(node.attr)}.{said}")

    def _read_call(self, node: ast.Call) -> None:
        into = node.func
        if isinstance(into, ast.Attribute) and self.is_server(into.value):
            assert isinstance(into.value, ast.Name)
            tool = self._toolbox.tool(into.value.id, into.attr)
            if tool is not None:
                self._add(node, tool, node.args, node.keywords)
        elif isinstance(into, ast.Name) and into.id in _BY_NAME and into.id not in self.bound and node.args:
            self._read_by_name(node, into.id)

    def _read_by_name(self, node: ast.Call, how: str) -> None:
        first = node.args[0]
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return
        tool = self._toolbox.named(first.value)
        if tool is None:
            if said := self.unknown(first.value):
                self._note(node, said)
        elif how == "call" and len(node.args) == 1:
            self._add(node, tool, (), node.keywords)
        elif how == "parallel" and len(node.args) == 2:
            for item in _items(self._constants.resolved(node.args[1])):
                if isinstance(item, ast.Dict) and (keywords := _keywords(item)) is not None:
                    self._add(node, tool, (), keywords)

    def unknown(self, name: str) -> str:
        """The problem with a tool name, or "". The gateway accepts more spellings than scripts do, so a name is a
        mistake only if none of those spellings could mean it.
        """
        if self._toolbox.named(name) is not None:
            return ""
        last = python_name(_LAST_PART.split(name)[-1]).casefold()
        whole = python_name(name).casefold()
        if last in self._ends or whole.endswith(self._ends):
            return ""
        return f"there is no tool {shown(name)}.{hint(name, self._spelt, 'tools')}"

    @lazy
    def _spelt(self) -> Sequence[str]:
        return [f"{server}.{tool}" for server, tools in self._toolbox.servers.items() for tool in tools]

    @lazy
    def _ends(self) -> tuple[str, ...]:
        """The endings that the spelling of any tool can have."""
        tools = [(name, tool) for of_server in self._toolbox.servers.values() for name, tool in of_server.items()]
        return tuple({spelt.casefold() for name, tool in tools for spelt in (name, python_name(tool.name))})

    def _add(
        self, node: ast.Call, tool: CatalogTool, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> None:
        spelling = self._toolbox.spelling(tool)
        self.sites.append(CallSite(tool, node))
        given = [ast.keyword(arg=one.arg, value=self._constants.resolved(one.value) or one.value) for one in keywords]
        found = argument_problems(tool, spelling, args, given, self.schemas)
        for message in islice(found, _MOST_OF_A_CALL):
            self._note(node, message)

    def _note(self, node: ast.expr, message: str) -> None:
        self.problems.append(problem(node.lineno, message))


def _items(given: ast.expr | None) -> Sequence[ast.expr]:
    """The argument sets in a call of `parallel`, as far as they are literals."""
    match given:
        case ast.List(elts=items):
            return items
        case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
            return [item]
    return ()


def _keywords(item: ast.Dict) -> list[ast.keyword] | None:
    """A dict of arguments as keyword arguments; None if some key is not a literal text."""
    found = []
    for key, value in zip(item.keys, item.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found.append(ast.keyword(arg=key.value, value=value))
    return found


def argument_problems(
    tool: CatalogTool,
    spelling: str,
    args: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    schemas: ArgumentSchemas,
) -> Iterator[str]:
    """The problems with the arguments of one call. Unpacked arguments are unknown and therefore pass."""
    parameters = parameters_of(tool)
    if any(isinstance(arg, ast.Starred) for arg in args) or (len(args) == 1 and not isinstance(args[0], ast.Constant)):
        # A single positional argument may be the object with all arguments.
        return
    if len(args) > len(parameters):
        yield f"{spelling} takes {len(parameters)} arguments, not {len(args)}."
        return
    schema = tool.record.details.input_schema
    given: dict[str, ast.expr] = {parameter.own: arg for parameter, arg in zip(parameters, args, strict=False)}
    known = by_any_name(tool)
    for keyword in keywords:
        if keyword.arg is None:
            continue
        if (parameter := known.get(keyword.arg)) is not None:
            given[parameter.own] = keyword.value
        elif takes_only_named(schema) or (not parameters and schema.get("additionalProperties") is False):
            yield f"{spelling} has no argument {shown(keyword.arg)}.{_hint(keyword.arg, parameters, given)}"
    if all(keyword.arg is not None for keyword in keywords):
        yield from _missing(spelling, parameters, given)
    yield from _invalid(spelling, given, tool, schemas)


def _hint(name: str, parameters: Sequence[Parameter], given: Mapping[str, Any]) -> str:
    return hint(name, [one.python for one in parameters if one.own not in given], "others")


def _missing(spelling: str, parameters: Sequence[Parameter], given: Mapping[str, Any]) -> Iterator[str]:
    for parameter in parameters:
        if parameter.is_required and parameter.own not in given:
            yield f"{spelling} needs the argument {shown(parameter.python)}."


def _invalid(
    spelling: str, given: Mapping[str, ast.expr], tool: CatalogTool, schemas: ArgumentSchemas
) -> Iterator[str]:
    """Literal arguments that the schema does not accept."""
    known = by_any_name(tool)
    for name, node in given.items():
        written = _literal(node)
        if written is None or (written.value is None and not known[name].is_required):
            continue
        check = schemas.of(tool, name)
        value = {name: written.value}
        if check is not None and not check.admits(value):
            messages = [message for _, message in check.problems(value, 1)]
            if messages:
                yield f"{spelling}, argument {shown(name)}: {messages[0]}"


@dataclass(frozen=True)
class _Written:
    value: Any


def _literal(node: ast.expr) -> _Written | None:
    """The value of a literal argument, as JSON."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return _Written(value) if _is_json(value) and len(repr(value)) <= _LONGEST_LITERAL else None


def _is_json(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_json, value.values()))
    is_number = isinstance(value, int | float) and abs(value) < 2**53
    return value is None or isinstance(value, str | bool) or is_number
