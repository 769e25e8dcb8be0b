"""Reads the names and keys of a script from its syntax tree before the rehearsal. Pure.

Finds which function each name belongs to, what a condition implies about names, and which keys and names the script
itself allows to be missing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp_optimizer.scripts.names import HELPERS, MODULES
from mcp_optimizer.scripts.rehearsal.values import UNKNOWN, Atom, Result, Value, doubted, join, tested
from mcp_optimizer.scripts.stubs import NONE, ObjectType, UnionType
from mcp_optimizer.scripts.syntax import bound_names, inside

Env = dict[str, Value]
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOOKING = frozenset({"isinstance", "type", "hasattr", "callable", "getattr"})


@dataclass
class Frame:
    """A running function of the script, or the script itself."""

    scope: Scope | None
    env: Env = field(default_factory=dict)
    returned: list[Value] = field(default_factory=list)
    left: list[Env] = field(default_factory=list)
    """The names at each `break` and `continue` of the current loop."""

    def use(self, env: Env) -> None:
        """Replaces the values of its names."""
        self.env = env

    def loop(self, left: list[Env]) -> list[Env]:
        """Enters a loop, or returns to the outer one; returns the exits recorded for the previous loop."""
        before, self.left = self.left, left
        return before


class Scopes:
    """Maps each name to the function that it belongs to."""

    def __init__(self, tree: ast.Module) -> None:
        self._around: dict[Scope, Scope | None] = {}
        self._own: dict[Scope, frozenset[str]] = {}
        self.numbers: list[Scope] = []
        self.shared: set[str] = set()
        """Names that functions change outside themselves."""
        waiting: list[tuple[ast.AST, Scope | None]] = [(tree, None)]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, Scope):
                self._around[node] = around
                self.numbers.append(node)
                around = node
            elif isinstance(node, ast.Global | ast.Nonlocal):
                self.shared.update(node.names)
            waiting += [(child, around) for child in ast.iter_child_nodes(node)]
        self._at = {node: number for number, node in enumerate(self.numbers)}

    def number(self, scope: Scope) -> int:
        return self._at[scope]

    def own(self, scope: Scope) -> frozenset[str]:
        """The names that a function binds itself."""
        if scope not in self._own:
            self._own[scope] = frozenset(bound_names(inside(scope)))
        return self._own[scope]

    def find(self, name: str, frames: list[Frame]) -> Value | None:
        """The value of a name; None if the script does not define it there."""
        if name in self.shared:
            return UNKNOWN
        scope = frames[-1].scope
        while scope is not None:
            if name in self.own(scope):
                # A function that outlives its enclosing function still sees that function's names.
                frame = next((one for one in reversed(frames) if one.scope is scope), None)
                return UNKNOWN if frame is None else frame.env.get(name, UNKNOWN)
            scope = self._around[scope]
        return frames[0].env.get(name)


def joined(envs: list[Env]) -> Env:
    """The names after branches are joined."""
    if len(envs) == 1:
        return envs[0]
    first, *others = envs
    found = dict(first)
    for env in others:
        for name, value in env.items():
            known = found.get(name, value)
            found[name] = value if known is value else join(known, value)
    return found


def narrow(test: ast.expr, env: Env) -> Env:
    """The names inside a condition. The rehearsal does not follow what it implies, so they become less certain."""
    found = dict(env)
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOKING:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and inner.id in found:
                    found[inner.id] = doubted(found[inner.id])
    for name in _compared(test):
        if name in found:
            found[name] = tested(found[name])
    return found


def _compared(test: ast.expr) -> Iterator[str]:
    """Names whose value a condition tests, without those of which it only reads keys."""
    waiting: list[ast.AST] = [test]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name):
                yield name
            case ast.Compare(left=left, comparators=others):
                waiting += [left, *others]
            case ast.BoolOp(values=values):
                waiting += values
            case ast.UnaryOp(operand=operand):
                waiting.append(operand)
            case ast.NamedExpr(target=target, value=value):
                waiting += [target, value]
            case ast.Call(func=ast.Attribute(value=value), args=args):
                waiting += [value, *args]
            case ast.Tuple(elts=parts):
                waiting += parts


_ALWAYS = HELPERS | MODULES | frozenset(dir(builtins))
_SETTING = frozenset({"setdefault", "pop", "update"})


def expected_keys(tree: ast.Module) -> frozenset[str]:
    """Keys that the script sets, or reads in a way that allows for their absence."""
    found: set[object] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Store() | ast.Del()):
                found.add(key)
            case ast.Call(func=ast.Attribute(attr=name), args=args, keywords=keywords) if name in _SETTING:
                found |= {key.value for arg in args for key in _keys(arg)} | {keyword.arg for keyword in keywords}
            case ast.Compare(left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()]):
                found.add(key)
            case ast.Compare(left=ast.Set(elts=keys) | ast.List(elts=keys) | ast.Tuple(elts=keys)):
                found |= {key.value for key in keys if isinstance(key, ast.Constant)}
            case ast.BoolOp(op=ast.Or(), values=ways) if sum(map(_asks, ways)) > 1:
                found |= {key for way in ways for key in _got(way)}
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), other]) if _asks(other):
                found.add(key)
            case ast.Try(body=body, handlers=handlers) if any(map(_expects_missing, handlers)):
                found |= {inner.value for one in body for inner in ast.walk(one) if isinstance(inner, ast.Constant)}
    return frozenset(key for key in found if isinstance(key, str))


def tested_keys(tree: ast.Module) -> frozenset[str]:
    """Keys that the script tests anywhere before using them; the rehearsal does not follow tests for null."""
    looking: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
                looking.append(test)
            case ast.comprehension(ifs=tests):
                looking += tests
            case ast.BoolOp() | ast.Compare() | ast.Match() | ast.Try():
                looking.append(node)
            case ast.Call(func=ast.Attribute(attr="get")) | ast.Call(func=ast.Name(id="filter")):
                looking.append(node)
            case ast.UnaryOp(op=ast.Not()):
                looking.append(node)
    inner = (one for node in looking for one in ast.walk(node))
    return frozenset(one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str))


def late_names(tree: ast.Module) -> frozenset[str]:
    """Names that only top-level statements assign: before those statements they have no value."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    nodes: list[ast.AST] = []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    for node in nodes:
        match node:
            case ast.Import() | ast.ImportFrom():
                found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            case ast.NamedExpr(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(bound_names(nodes)) - found - _ALWAYS


def _keys(arg: ast.expr) -> Iterator[ast.Constant]:
    parts = arg.keys if isinstance(arg, ast.Dict) else [arg]
    return (part for part in parts if isinstance(part, ast.Constant))


def _asks(node: ast.expr) -> bool:
    """Whether an expression looks something up, as an alternative to another key."""
    return any(isinstance(inner, ast.Call | ast.Subscript) for inner in ast.walk(node))


def _got(node: ast.expr) -> Iterator[object]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]):
                yield key


def _expects_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a handler expects a missing key."""
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    return handler.type is None or not names.isdisjoint({"KeyError", "LookupError", "Exception", "BaseException"})


def may_be_null(value: Value, key: str) -> str:
    """The tool that declares null next to other values under a key of its results; "" unless all possibilities do."""
    found = [_null_in(atom, key) for atom in value]
    return found[0] if found and all(found) else ""


def _null_in(atom: Atom, key: str) -> str:
    if not isinstance(atom, Result) or not isinstance(atom.type, ObjectType):
        return ""
    declared = next((one.type for one in atom.type.fields if one.name == key), None)
    return atom.tool if isinstance(declared, UnionType) and NONE in declared.parts else ""
