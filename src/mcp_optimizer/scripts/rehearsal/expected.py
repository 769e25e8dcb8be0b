"""What a script takes for granted, and what it does not: keys of results, and names. Pure."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from mcp_optimizer.scripts.names import HELPERS, MODULES
from mcp_optimizer.scripts.rehearsal.values import Atom, Result, Value
from mcp_optimizer.scripts.syntax import bound_names
from mcp_optimizer.scripts.types_of import NONE, ObjectType, UnionType

_ALWAYS = HELPERS | MODULES | frozenset(dir(builtins))
_SETTING = frozenset({"setdefault", "pop", "update"})


def expected_keys(tree: ast.Module) -> frozenset[str]:
    """Keys that the script sets, or looks for in a way that says that they may be missing."""
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
    """Keys that the script looks at before it uses them, anywhere: what it says about null is not followed."""
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
    """Names that only the script's own statements give a value, outside of functions: before them they have none."""
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
    """Whether something is asked for a key: an alternative to another key."""
    return any(isinstance(inner, ast.Call | ast.Subscript) for inner in ast.walk(node))


def _got(node: ast.expr) -> Iterator[object]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]):
                yield key


def _expects_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a key that is missing is no surprise."""
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    return handler.type is None or not names.isdisjoint({"KeyError", "LookupError", "Exception", "BaseException"})


def may_be_null(value: Value, key: str) -> str:
    """The tool that declares null beside other values under a key of its results; empty if that is not all there is."""
    found = [_null_in(atom, key) for atom in value]
    return found[0] if found and all(found) else ""


def _null_in(atom: Atom, key: str) -> str:
    if not isinstance(atom, Result) or not isinstance(atom.type, ObjectType):
        return ""
    declared = next((one.type for one in atom.type.fields if one.name == key), None)
    return atom.tool if isinstance(declared, UnionType) and NONE in declared.parts else ""
