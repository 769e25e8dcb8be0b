"""A script's syntax tree, and the facts that it shows without knowledge of any tool. Pure.

A script may come from anyone: any failure of the parser is an error of the script, and walking the tree uses no
recursion.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterable, Iterator

from mcp_optimizer.errors import InvalidRequest

_DEEPEST = 100
"""Levels of nesting that a script may have; no model writes more."""

_PARSING = threading.Lock()
"""Held while parsing: in Python 3.11, two threads that parse at once sometimes fail with SystemError, because they
share the count of the tree's depth. It also guards switching off warnings, which affects all threads.
"""


def parsed(script: str) -> ast.Module:
    """Raises InvalidRequest, with the line, for invalid Python."""
    try:
        tree = parsed_quietly(script)
    except SyntaxError as error:
        raise InvalidRequest(f"line {error.lineno or 1}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidRequest("The script cannot be read: it is nested too deeply, or is no text.") from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise InvalidRequest(f"line {getattr(level[0], 'lineno', 1)}: the script is nested too deeply.")


def parsed_quietly(script: str) -> ast.Module:
    """Parses without Python's warnings about the script, which would go to our log instead of its author."""
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(script)


def in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, parents before their children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(ast.iter_child_nodes(node)))


def called(node: ast.Call) -> str:
    """The plain name of the called function: `call`, `asyncio.gather`; "" if it has none."""
    into = node.func
    if isinstance(into, ast.Name):
        return into.id
    if isinstance(into, ast.Attribute) and isinstance(into.value, ast.Name):
        return f"{into.value.id}.{into.attr}"
    return ""


def imported(nodes: Iterable[ast.AST], module: str) -> frozenset[str]:
    """The names imported from a module."""
    return frozenset(
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    )


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that the script binds, anywhere."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield (other or name).partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def inside(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    """The nodes of a function, without those of nested functions, whose names are their own."""
    yield from ast.walk(scope.args)
    waiting: list[ast.AST] = [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
