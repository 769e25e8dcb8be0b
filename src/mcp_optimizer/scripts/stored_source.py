"""What the source of a stored script says about itself: the tools it names, and the names it leaves to its caller.

Pure; nothing is run.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_optimizer.scripts.syntax import bound_names, parsed

_CALLING = frozenset({"call", "parallel"})
_NOT_TAKEN = frozenset(dir(builtins))


@dataclass(frozen=True)
class ReadSource:
    """`attributes`: pairs `a.b` of names that the script does not bind; `named`: texts given to `call` and `parallel`,
    each with the line where it comes first. `free`: names that it reads and never binds. `passed`: for each of these, a
    call and the keyword that it is given for, if there is one. `names`: all that it mentions.
    """

    attributes: Mapping[tuple[str, str], int]
    named: Mapping[str, int]
    free: Mapping[str, int]
    passed: Mapping[str, tuple[tuple[str, str], str]]
    names: frozenset[str]


def read_source(source: str) -> ReadSource:
    """Raises InvalidRequest, with the line, if it is no Python."""
    nodes = list(ast.walk(parsed(source)))
    bound = set(bound_names(nodes))
    free: dict[str, int] = {}
    attributes: dict[tuple[str, str], int] = {}
    named: dict[str, int] = {}
    passed: dict[str, tuple[tuple[str, str], str]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound | _NOT_TAKEN:
            free.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in bound:
            attributes.setdefault((node.value.id, node.attr), node.lineno)
        elif isinstance(node, ast.Call):
            if (text := _named(node)) is not None:
                named.setdefault(text, node.lineno)
            called = _spelt(node.func)
            for given in node.keywords:
                if called is not None and given.arg is not None and isinstance(given.value, ast.Name):
                    passed.setdefault(given.value.id, (called, given.arg))
    mentioned = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return ReadSource(attributes, named, free, {name: at for name, at in passed.items() if name in free}, mentioned)


def _named(node: ast.Call) -> str | None:
    """The name of the tool in `call("...")` and `parallel("...")`."""
    is_helper = isinstance(node.func, ast.Name) and node.func.id in _CALLING
    first = node.args[0] if is_helper and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _spelt(function: ast.expr) -> tuple[str, str] | None:
    """The two names of `server.tool`."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id, function.attr
    return None
