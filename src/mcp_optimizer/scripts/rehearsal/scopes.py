"""The names of a script while it is gone through, by function. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp_optimizer.scripts.rehearsal.values import UNKNOWN, Value, doubted, join, tested
from mcp_optimizer.scripts.syntax import bound_names, inside

Env = dict[str, Value]
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOOKING = frozenset({"isinstance", "type", "hasattr", "callable", "getattr"})


@dataclass
class Frame:
    """A function that is being called, or the script itself."""

    scope: Scope | None
    env: Env = field(default_factory=dict)
    returned: list[Value] = field(default_factory=list)
    left: list[Env] = field(default_factory=list)
    """The names where the loop that is gone through is left or begun again."""

    def use(self, env: Env) -> None:
        """Go on with other values of its names."""
        self.env = env

    def loop(self, left: list[Env]) -> list[Env]:
        """Begin another loop, or go back to one; what was left of the one before."""
        before, self.left = self.left, left
        return before


class Scopes:
    """Which function each name belongs to."""

    def __init__(self, tree: ast.Module) -> None:
        self._around: dict[Scope, Scope | None] = {}
        self._own: dict[Scope, frozenset[str]] = {}
        self.numbers: list[Scope] = []
        self.shared: set[str] = set()
        """Names that functions change outside of themselves."""
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
        """The names that are bound in a function itself."""
        if scope not in self._own:
            self._own[scope] = frozenset(bound_names(inside(scope)))
        return self._own[scope]

    def find(self, name: str, frames: list[Frame]) -> Value | None:
        """What a name stands for; None if the script gives it no meaning there."""
        if name in self.shared:
            return UNKNOWN
        scope = frames[-1].scope
        while scope is not None:
            if name in self.own(scope):
                # A function that outlives the one around it still has the names of that one.
                frame = next((one for one in reversed(frames) if one.scope is scope), None)
                return UNKNOWN if frame is None else frame.env.get(name, UNKNOWN)
            scope = self._around[scope]
        return frames[0].env.get(name)


def joined(envs: list[Env]) -> Env:
    """The names after one of several ways."""
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
    """The names inside of a condition: what it says about them is not followed, so they are less certain there."""
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
    """Names that a condition is about, not those whose keys it looks at."""
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
