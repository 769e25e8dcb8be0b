"""Finds names and module members that a script uses but nothing defines, and syntax that its interpreter lacks. Pure.

Reports only what is certain regardless of scope: a name that the script binds anywhere passes.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from mcp_optimizer.scripts.interpreter import BUILTINS, IMPORTED, has_member
from mcp_optimizer.scripts.names import HELPERS, MODULES, Toolbox
from mcp_optimizer.scripts.problems import hint, nearest, shown
from mcp_optimizer.scripts.syntax import bound_names, inside
from mcp_optimizer.scripts.unsupported import has_no_member, instead_of_name, unsupported

Found = Iterator[tuple[int, str]]
"""Problems, each with its line."""

_HOST = {"os": frozenset({"environ"})}
"""Members that the interpreter requests from the host, whose refusal has its own message."""


def undefined_names(nodes: Collection[ast.AST], bound: Collection[str], toolbox: Toolbox) -> Found:
    """Names that are read but defined neither by the script nor by its interpreter."""
    known = BUILTINS | IMPORTED | HELPERS | {*bound, *toolbox.servers}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
            yield node.lineno, _undefined(node.id, bound, toolbox)


def _undefined(name: str, bound: Collection[str], toolbox: Toolbox) -> str:
    servers = toolbox.servers
    if instead := instead_of_name(name):
        return f"{shown(name)} is not defined. {instead}"
    if having := [f"{server}.{name}" for server, tools in servers.items() if name in tools]:
        return f"{shown(name)} is not defined. Did you mean {having[0]}?"
    if name in MODULES:
        return f"{shown(name)} is not imported. Write: import {name}"
    if near := nearest(name, [*servers, *HELPERS, *bound]):
        return f"{shown(name)} is not defined. Did you mean {near}?"
    return f"{shown(name)} is not defined: no variable, and no server.{hint(name, servers, 'servers')}"


def unset_in_functions(nodes: Collection[ast.AST]) -> Found:
    """Names that a function only augments: they are local to it and have no value yet."""
    for scope in nodes:
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = list(inside(scope))
        adding = {id(node.target): node.target for node in own if isinstance(node, ast.AugAssign)}
        declared = [name for node in own if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names]
        given = {*declared, *bound_names(node for node in own if id(node) not in adding)}
        for target in adding.values():
            if isinstance(target, ast.Name) and target.id not in given:
                name = shown(target.id)
                yield target.lineno, f"{name} is read before it is given a value: write `global {target.id}` before."


def unknown_members(nodes: Collection[ast.AST], tried: Collection[int]) -> Found:
    """Names that a module lacks in scripts. `tried`: ids of nodes inside `try`, where a failure is not a mistake."""
    modules = _modules(nodes)
    for node in nodes:
        if id(node) in tried:
            continue
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if module := modules.get(name):
                if not has_member(module, attr) and attr not in _HOST.get(module, ()):
                    yield node.lineno, has_no_member(module, attr)
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                missing = (one.name for one in aliases if one.name != "*" and not has_member(module, one.name))
                yield from ((node.lineno, has_no_member(module, name)) for name in missing)


def _modules(nodes: Collection[ast.AST]) -> Mapping[str, str]:
    """Names that mean a module, and nothing else anywhere in the script."""
    imports = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    plain = {one.asname or one.name: one.name for one in imports if one.name in MODULES}
    are_imports = {id(one) for one in imports}
    others = set(bound_names(node for node in nodes if id(node) not in are_imports))
    others |= {(one.asname or one.name).partition(".")[0] for one in imports if one.name not in MODULES}
    return {name: module for name, module in ({one: one for one in IMPORTED} | plain).items() if name not in others}


def missing_syntax(nodes: Collection[ast.AST]) -> Found:
    """Python syntax that the scripts' interpreter cannot read."""
    for node in nodes:
        if what := _lacking(node):
            yield getattr(node, "lineno", 1), unsupported(what)


def _lacking(node: ast.AST) -> str:
    match node:
        case ast.AsyncWith():
            return "async context managers (async with)"
        case ast.AsyncFor():
            return "async for loops"
        case ast.ListComp(generators=parts) | ast.SetComp(generators=parts) | ast.GeneratorExp(generators=parts):
            return "async comprehensions" if any(part.is_async for part in parts) else ""
        case ast.DictComp(generators=parts):
            return "async comprehensions" if any(part.is_async for part in parts) else ""
        case ast.Yield() | ast.YieldFrom():
            return "yield expressions"
        case ast.TryStar():
            return "exception groups (try*/except*)"
        case ast.ClassDef(bases=[_, *_]) | ast.ClassDef(keywords=[_, *_]):
            return "class inheritance and metaclasses"
        case ast.ClassDef(body=body):
            return "method decorators" if any(getattr(one, "decorator_list", ()) for one in body) else ""
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            return "`from ... import *`"
    return ""
